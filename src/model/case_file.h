// Case files: one safetensors file is one call of the operation with its true result (docs/cases.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fourfold/verify.h"

namespace fourfold {

/// A case in memory. Movable; the views point into `storage`.
struct MoeCase {
  std::string name;
  Caps caps;  // max_tokens is the file's token count
  StackedExperts experts;
  MoeTensors inputs;                    // x, topk_ids, topk_weights, expert_map
  std::vector<double> expected, bound;  // [T, H]; empty when `refuse`
  std::uint64_t invalid_ids = 0;
  bool refuse = false;
  std::vector<std::unique_ptr<std::byte[]>> storage;  // one block per tensor
};

/// Reads a case. Throws bad_input when the file is no safetensors file, lacks a metadata key or a tensor that every
/// case has, or holds a value that does not parse. Shapes are judged by whoever runs the case.
MoeCase read_case(const std::string& file);

}  // namespace fourfold
