// Writing safetensors files of a planned content, front to back, and the index of several.
// Source: the safetensors format; Hugging Face sharded checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "fourfold/tensor.h"

namespace fourfold {

/// A tensor that will be written: everything but its bytes.
struct PlannedTensor {
  std::string name;
  DType dtype = DType::u8;
  std::vector<std::int64_t> shape;
  /// Overflow is the caller's to exclude (sizes come from tensors that exist).
  std::uint64_t bytes() const noexcept;
};

/// One file. The header is written by the constructor; then every tensor's bytes, in the planned order; then close().
class ShardWriter {
 public:
  /// Data starts at a multiple of 8. Throws bad_input when writing fails.
  ShardWriter(const std::string& path, std::vector<PlannedTensor> tensors,
              const std::map<std::string, std::string>& metadata);
  /// Appends bytes of the current tensor, in one piece or several. Throws internal when they are more than planned.
  void append(std::span<const std::byte> bytes);
  /// fsyncs. Throws internal unless every planned byte came.
  void close();

 private:
  OutputFile file_;
  std::uint64_t remaining_ = 0;
};

/// "model.safetensors" for one shard, else "model-00002-of-00005.safetensors". `shard` counts from 0. Pure.
std::string shard_name(std::size_t shard, std::size_t shards);

/// Greedy: consecutive items share a shard while their bytes stay at or below `max_bytes`; an item above that has its
/// own. Returns the first item of each shard. Pure.
std::vector<std::size_t> split_into_shards(std::span<const std::uint64_t> item_bytes, std::uint64_t max_bytes);

}  // namespace fourfold
