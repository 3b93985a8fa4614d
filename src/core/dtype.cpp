// Names and widths of element types (safetensors format, "Format" section).
#include <array>
#include <utility>

#include "fourfold/tensor.h"

namespace fourfold {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array<DTypeInfo, 17> kDTypes{{
    {DType::boolean, "BOOL", 8},
    {DType::u8, "U8", 8},
    {DType::i8, "I8", 8},
    {DType::f8_e4m3, "F8_E4M3", 8},
    {DType::f8_e5m2, "F8_E5M2", 8},
    {DType::f8_e8m0, "F8_E8M0", 8},
    {DType::f4_e2m1, "F4", 4},
    {DType::i16, "I16", 16},
    {DType::u16, "U16", 16},
    {DType::f16, "F16", 16},
    {DType::bf16, "BF16", 16},
    {DType::i32, "I32", 32},
    {DType::u32, "U32", 32},
    {DType::f32, "F32", 32},
    {DType::i64, "I64", 64},
    {DType::u64, "U64", 64},
    {DType::f64, "F64", 64},
}};

}  // namespace

int dtype_bits(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].bits; }

std::string_view dtype_name(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (const DTypeInfo& info : kDTypes)
    if (info.name == name) return info.dtype;
  return std::nullopt;
}

}  // namespace fourfold
