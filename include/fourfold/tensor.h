// Element types and non-owning views of dense row-major tensors: how data crosses the library's border.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <type_traits>

namespace fourfold {

/// Element types, named as in the safetensors format (F8_E4M3 is the OCP "FN" variant: no infinities).
enum class DType : std::uint8_t {
  boolean, u8, i8, f8_e4m3, f8_e5m2, f8_e8m0, f4_e2m1, i16, u16, f16, bf16, i32, u32, f32, i64, u64, f64,
};

/// Width of one element in bits (f4_e2m1 is 4, everything else a multiple of 8). Pure.
int dtype_bits(DType dtype) noexcept;
/// Safetensors spelling: "BF16", "F8_E4M3", ... Pure.
std::string_view dtype_name(DType dtype) noexcept;
/// Inverse of dtype_name; nullopt when unknown. Pure.
std::optional<DType> dtype_from_name(std::string_view name) noexcept;

inline constexpr int kMaxRank = 6;

/// Contiguous row-major view. `Pointer` is `void*` (writable) or `const void*`. Owns nothing.
template <class Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};

  BasicTensorView() = default;
  /// `shape` has at most kMaxRank entries.
  BasicTensorView(Pointer data_in, DType dtype_in, std::initializer_list<std::int64_t> shape_in)
      : data(data_in), dtype(dtype_in), rank(static_cast<int>(shape_in.size())) {
    int axis = 0;
    for (std::int64_t extent : shape_in)
      if (axis < kMaxRank) shape[axis++] = extent;
  }
  /// A writable view is also a read-only one.
  operator BasicTensorView<const void*>() const {
    BasicTensorView<const void*> view;
    view.data = data;
    view.dtype = dtype;
    view.rank = rank;
    view.shape = shape;
    return view;
  }
  /// True for a default-constructed view: "no such tensor".
  bool absent() const noexcept { return data == nullptr && rank == 0; }
  /// Product of the extents; 1 for a scalar. Valid views never overflow (checked where they enter).
  std::int64_t elements() const noexcept {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= shape[axis];
    return count;
  }
  /// Rounded up to whole bytes for 4-bit elements.
  std::int64_t bytes() const noexcept { return (elements() * dtype_bits(dtype) + 7) / 8; }
  /// The data as T, const for a read-only view. Whether dtype is T is the caller's to know.
  template <class T>
  auto as() const noexcept {
    if constexpr (std::is_const_v<std::remove_pointer_t<Pointer>>)
      return static_cast<const T*>(data);
    else
      return static_cast<T*>(data);
  }
};

using TensorView = BasicTensorView<void*>;
using ConstTensorView = BasicTensorView<const void*>;

}  // namespace fourfold
