// Conversions of activation rows, and the activation's options as the kernels read them.
#include "cpu/activation.h"

#include <cstring>

#include "core/float16.h"

namespace fourfold::cpu {
namespace {

template <class T>
T load(const void* data, std::int64_t index) noexcept {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(void* data, std::int64_t index, T value) noexcept {
  std::memcpy(static_cast<std::byte*>(data) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

void gather_row(const void* in, DType dtype, std::int64_t columns, std::int64_t padded_columns, bool bf16_dot,
                std::uint8_t* out) noexcept {
  const std::int64_t value_bytes = bf16_dot ? 2 : 4;
  std::memset(out + columns * value_bytes, 0, static_cast<std::size_t>((padded_columns - columns) * value_bytes));
  if (bf16_dot || dtype == DType::f32) {
    std::memcpy(out, in, static_cast<std::size_t>(columns * value_bytes));
  } else if (dtype == DType::bf16) {
    for (std::int64_t c = 0; c < columns; ++c) store(out, c, bf16_to_float(load<std::uint16_t>(in, c)));
  } else {
    for (std::int64_t c = 0; c < columns; ++c) store(out, c, f16_to_float(load<std::uint16_t>(in, c)));
  }
}

void store_row(const float* in, std::int64_t columns, DType dtype, void* out) noexcept {
  if (dtype == DType::f32) {
    std::memcpy(out, in, static_cast<std::size_t>(columns) * 4);
  } else if (dtype == DType::bf16) {
    for (std::int64_t c = 0; c < columns; ++c) store(out, c, float_to_bf16(in[c]));
  } else {
    for (std::int64_t c = 0; c < columns; ++c) store(out, c, float_to_f16(in[c]));
  }
}

void describe_activation(const Activation& activation, DType dtype, ActivateCall& call) noexcept {
  switch (activation.kind) {
    case ActivationKind::silu:
      call.function = ActivationFunction::silu;
      break;
    case ActivationKind::swiglu_oai:
      call.function = ActivationFunction::swiglu_oai;
      break;
    case ActivationKind::situ:
      call.function = ActivationFunction::situ;
      break;
    case ActivationKind::gelu_tanh:
      call.function = ActivationFunction::gelu_tanh;
      break;
    case ActivationKind::relu2:
      call.function = ActivationFunction::relu2;
      break;
  }
  call.round_to = dtype == DType::bf16 ? RoundTo::bf16 : dtype == DType::f16 ? RoundTo::f16 : RoundTo::f32;
  call.has_limit = activation.limit.has_value();
  call.limit = activation.limit.value_or(7.0f);
  call.alpha = activation.alpha.value_or(1.702f);
  call.beta = activation.beta.value_or(1.0f);
}

}  // namespace fourfold::cpu
