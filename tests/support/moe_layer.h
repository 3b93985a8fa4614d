// Short words for tests of the operation: backends of every instruction set, a layer ready to run, a judge.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "fourfold/error.h"
#include "fourfold/verify.h"
#include "moe/random_call.h"

namespace support {

/// One backend per instruction set that this machine has, weakest first; never empty. Made once.
const std::vector<std::shared_ptr<fourfold::Backend>>& backends();
/// The widest of them.
fourfold::Backend& native();

/// Caps from the problem language; max_tokens is the largest count in it.
fourfold::Caps caps_of(std::string_view problem);

using Bytes = std::vector<std::byte>;

/// A plan, packed weights and a workspace. Runs any number of calls.
class MoeLayer {
 public:
  MoeLayer(const fourfold::Caps& caps, const fourfold::StackedExperts& experts, fourfold::Backend& backend = native());
  const fourfold::Plan& plan() const { return plan_; }
  const fourfold::ExpertWeights& weights() const { return weights_; }
  fourfold::Backend& backend() const { return backend_; }
  std::span<std::byte> workspace() const { return workspace_.span(); }
  /// Runs into a fresh output of 0xff bytes. `invalid_ids` may be null.
  Bytes run(const fourfold::MoeTensors& inputs, std::uint32_t* invalid_ids = nullptr) const;
  /// Runs with the caller's workspace and output memory.
  void run_in(const fourfold::MoeTensors& inputs, std::span<std::byte> workspace, void* out,
              std::uint32_t* invalid_ids = nullptr) const;

 private:
  fourfold::Backend& backend_;
  fourfold::Plan plan_;
  fourfold::ExpertWeights weights_;
  fourfold::Workspace workspace_;
};

/// Rows [first, first + count) of a call's tokens: views, no copy.
fourfold::MoeTensors rows_of(const fourfold::MoeTensors& inputs, std::int64_t first, std::int64_t count);

/// Success when `out` [T, H] fits the oracle, every element compared, at least one.
testing::AssertionResult fits_oracle(const fourfold::Caps& caps, const fourfold::StackedExperts& experts,
                                     const fourfold::MoeTensors& inputs, const Bytes& out);

/// Random experts and tokens for `problem` on `backend`, compared with the oracle; the counted invalid ids too.
testing::AssertionResult problem_fits(const fourfold::Caps& caps, std::int64_t tokens, std::uint64_t seed,
                                      fourfold::Backend& backend, const fourfold::RandomCallOptions& options = {});

/// Element `index` of an output as a double.
double element(const Bytes& out, fourfold::DType dtype, std::int64_t index);
/// `values` in `dtype` (bf16, f16 or f32), rounded to nearest even.
Bytes in_dtype(const std::vector<double>& values, fourfold::DType dtype);

}  // namespace support
