// From the dense tensors of a checkpoint to weights in a backend's layout: norms, projections, embedding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "fourfold/backend.h"
#include "model/checkpoint.h"
#include "model/hf_config.h"

namespace fourfold {

/// Reads one checkpoint for one activation dtype. Keeps references. Not thread-safe.
class DenseReader {
 public:
  DenseReader(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend, DType activations);

  /// One module of a fused weight.
  struct Part {
    std::string module;
    std::int64_t rows = 0;
  };
  /// Throws bad_input unless every part is there as [rows, k], with a bias of [rows] when `bias`. Reads headers only.
  void check_linear(std::span<const Part> parts, std::int64_t k, bool bias) const;
  /// The parts' rows one after the other as one weight [sum of rows, k]. bf16 stays bf16; other layouts go through
  /// fp32.
  std::unique_ptr<DenseWeight> linear(std::span<const Part> parts, std::int64_t k, bool bias) const;
  /// fp32 values as a weight; `exactly_bf16` says that each is a bf16 number and may be kept as one.
  std::unique_ptr<DenseWeight> from_f32(std::span<const float> values, std::int64_t rows, std::int64_t k,
                                        std::span<const float> bias, bool exactly_bf16) const;
  /// Throws bad_input unless the tensor is there with this shape.
  void check_tensor(const std::string& name, std::span<const std::int64_t> shape) const;
  /// A tensor [rows, k] of any float dtype, kept at fp32 accuracy: rows of the embedding are not rounded.
  std::unique_ptr<DenseWeight> table(const std::string& name, std::int64_t rows, std::int64_t k) const;
  /// Whether a table and a linear weight of the same bf16 tensor are the same bytes.
  bool table_serves_as_linear(const std::string& name) const;
  /// A tensor [width] as fp32 in the backend's memory.
  Workspace vector(const std::string& name, std::int64_t width) const;

 private:
  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  Backend& backend_;
  Ops& ops_;
  DType activations_;
};

}  // namespace fourfold
