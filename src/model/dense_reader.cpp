// From the dense tensors of a checkpoint to weights in a backend's layout: norms, projections, embedding.
#include "model/dense_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "backend/backend_interface.h"
#include "core/check.h"
#include "core/float16.h"
#include "model/linear_reader.h"

namespace fourfold {

DenseReader::DenseReader(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend, DType activations)
    : checkpoint_(checkpoint),
      config_(config),
      backend_(backend),
      ops_(backend.interface().ops()),
      activations_(activations) {}

void DenseReader::check_tensor(const std::string& name, std::span<const std::int64_t> shape) const {
  const TensorInfo& info = checkpoint_.require(name);
  check(std::ranges::equal(info.shape, shape), ErrorCode::bad_input, "{}: tensor {} has shape [{}], {} asks for [{}]",
        info.file, name, fmt::join(info.shape, ", "), config_.file, fmt::join(shape, ", "));
  check(info.dtype == DType::bf16 || info.dtype == DType::f16 || info.dtype == DType::f32, ErrorCode::bad_input,
        "{}: tensor {} has dtype {}, BF16, F16 or F32 is expected", info.file, name, dtype_name(info.dtype));
}

void DenseReader::check_linear(std::span<const Part> parts, std::int64_t k, bool bias) const {
  for (const Part& part : parts) {
    (void)describe_linear(checkpoint_, config_, part.module, part.rows, k);
    const std::string name = part.module + ".bias";
    if (bias)
      check_tensor(name, std::span(&part.rows, 1));
    else
      check(!checkpoint_.contains(name), ErrorCode::bad_input,
            "{}: tensor {} is there, but {} says there is no such bias", checkpoint_.path(), name, config_.file);
  }
}

std::unique_ptr<DenseWeight> DenseReader::linear(std::span<const Part> parts, std::int64_t k, bool bias) const {
  std::int64_t rows = 0;
  bool all_bf16 = true;
  for (const Part& part : parts) {
    rows = checked_add(rows, part.rows, "rows of a projection", ErrorCode::bad_input);
    const LinearInfo info = describe_linear(checkpoint_, config_, part.module, part.rows, k);
    all_bf16 = all_bf16 && info.layout == WeightLayout::plain && info.source_dtype == DType::bf16;
  }
  std::vector<float> biases(bias ? static_cast<std::size_t>(rows) : 0);
  const std::int64_t count = checked_mul(rows, k, "a projection", ErrorCode::bad_input);
  std::vector<std::uint16_t> halves(all_bf16 ? static_cast<std::size_t>(count) : 0);
  std::vector<float> values(all_bf16 ? 0 : static_cast<std::size_t>(count));
  std::int64_t row = 0;
  for (const Part& part : parts) {
    const auto at = static_cast<std::size_t>(row * k), size = static_cast<std::size_t>(part.rows * k);
    if (all_bf16)
      checkpoint_.read_range(part.module + ".weight", 0, std::as_writable_bytes(std::span(halves).subspan(at, size)));
    else
      read_linear_f32(checkpoint_, config_, part.module, part.rows, k, std::span(values).subspan(at, size));
    if (bias)
      checkpoint_.read_f32(part.module + ".bias", std::span(biases).subspan(static_cast<std::size_t>(row),
                                                                            static_cast<std::size_t>(part.rows)));
    row += part.rows;
  }
  ConstTensorView bias_view;
  if (bias) bias_view = ConstTensorView(biases.data(), DType::f32, {rows});
  return all_bf16 ? ops_.prepare_dense({halves.data(), DType::bf16, {rows, k}}, bias_view, activations_)
                  : ops_.prepare_dense({values.data(), DType::f32, {rows, k}}, bias_view, activations_);
}

std::unique_ptr<DenseWeight> DenseReader::from_f32(std::span<const float> values, std::int64_t rows, std::int64_t k,
                                                   std::span<const float> bias, bool exactly_bf16) const {
  ConstTensorView bias_view;
  if (!bias.empty()) bias_view = ConstTensorView(bias.data(), DType::f32, {rows});
  if (!exactly_bf16) return ops_.prepare_dense({values.data(), DType::f32, {rows, k}}, bias_view, activations_);
  std::vector<std::uint16_t> halves(values.size());
  std::ranges::transform(values, halves.begin(), float_to_bf16);
  return ops_.prepare_dense({halves.data(), DType::bf16, {rows, k}}, bias_view, activations_);
}

std::unique_ptr<DenseWeight> DenseReader::table(const std::string& name, std::int64_t rows, std::int64_t k) const {
  check_tensor(name, std::array{rows, k});
  return ops_.prepare_dense(checkpoint_.read(name).view(), {}, DType::f32);
}

bool DenseReader::table_serves_as_linear(const std::string& name) const {
  return activations_ == DType::f32 || checkpoint_.require(name).dtype == DType::bf16;
}

Workspace DenseReader::vector(const std::string& name, std::int64_t width) const {
  check_tensor(name, std::span(&width, 1));
  Workspace values = Workspace::allocate(static_cast<std::uint64_t>(width) * 4, backend_);
  checkpoint_.read_f32(name, {reinterpret_cast<float*>(values.span().data()), static_cast<std::size_t>(width)});
  return values;
}

}  // namespace fourfold
