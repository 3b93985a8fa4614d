// The dense kernels themselves, written once over the sixteen lanes that a ops_vec16_*.h provides (include that
// first). Everything here has internal linkage: each including file gets its own copy for its instruction set.
// exp: Cody and Waite's reduction, "Software Manual for the Elementary Functions", 1980, chapter 6.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/ops_kernels.h"

namespace fourfold::cpu {
namespace {

/// exp per lane, relative error below 2e-7 where the result is normal; 0 and infinity beyond fp32, NaN for NaN.
inline Vec exponential(Vec x) {
  x = maximum(broadcast(-104.0f), x);                          // below: rounds to 0
  x = minimum(broadcast(89.0f), x);                            // above: rounds to infinity
  const Vec n = nearest(multiply(x, broadcast(1.44269504f)));  // log2(e)
  // ln 2 in two parts; the first has 9 bits, so that n times it is exact for |n| < 2^14
  Vec r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  // Taylor to r^7 over |r| <= ln(2) / 2: the next term is 5e-9 relative
  Vec p = broadcast(1.0f / 5040.0f);
  p = fma(p, r, broadcast(1.0f / 720.0f));
  p = fma(p, r, broadcast(1.0f / 120.0f));
  p = fma(p, r, broadcast(1.0f / 24.0f));
  p = fma(p, r, broadcast(1.0f / 6.0f));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, multiply(r, r), r);
  return scale_by_power(add(p, broadcast(1.0f)), n);
}

/// Sum of the lanes in one fixed order.
inline float sum_lanes(Vec v) {
  float lane[16];
  store(lane, v);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

inline float largest_lane(Vec v) {
  float lane[16];
  store(lane, v);
  float best = lane[0];
  for (int i = 1; i < 16; ++i) best = lane[i] > best || lane[i] != lane[i] ? lane[i] : best;
  return best;
}

// ---- matrix tiles ---------------------------------------------------------------------------------------------

/// Two steps of k of 16 rows, as fp32.
struct PanelStep {
  Vec even, odd;
};

/// Weights bf16 in pairs, x fp32.
struct Bf16TimesF32 {
  using Panel = PanelStep;
  using X = float;
  struct Pair {
    Vec even, odd;
  };
  static constexpr std::int64_t kStepBytes = 64;  // two k of 16 rows
  static Panel panel(const std::byte* w) {
    Panel p;
    load_pairs(w, p.even, p.odd);
    return p;
  }
  static Pair pair(const float* x) { return {broadcast(x[0]), broadcast(x[1])}; }
  static Vec step(const Panel& p, const Pair& x, Vec sum) { return fma(p.odd, x.odd, fma(p.even, x.even, sum)); }
  static Vec last(const std::byte* w, const float* x, Vec sum) { return fma(panel(w).even, broadcast(x[0]), sum); }
};

/// Weights fp32, x fp32.
struct F32TimesF32 : Bf16TimesF32 {
  static constexpr std::int64_t kStepBytes = 128;
  static Panel panel(const std::byte* w) {
    const float* p = reinterpret_cast<const float*>(w);
    return {load(p), load(p + 16)};
  }
  static Vec last(const std::byte* w, const float* x, Vec sum) {
    return fma(load(reinterpret_cast<const float*>(w)), broadcast(x[0]), sum);
  }
};

/// P panels times M tokens with every sum in a register.
template <class Kind, int P, int M>
inline void tile(const TileCall& c, std::int64_t first_panel, std::int64_t first_token) {
  const std::byte* w = c.w + first_panel * c.panel_stride;
  const auto* x = static_cast<const typename Kind::X*>(c.x) + first_token * c.x_stride;
  float* y = c.y + first_token * c.y_stride + first_panel * kPanelRows;
  Vec sum[M][P];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p)
      sum[m][p] = c.mode == TileMode::resume ? load(y + m * c.y_stride + p * kPanelRows) : zero();
  for (std::int64_t k = 0; k + 1 < c.k; k += 2, w += Kind::kStepBytes) {
    if constexpr (M == 1) {
      const auto pair = Kind::pair(x + k);
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) sum[0][p] = Kind::step(Kind::panel(w + p * c.panel_stride), pair, sum[0][p]);
    } else {
      typename Kind::Panel panel[P];
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) panel[p] = Kind::panel(w + p * c.panel_stride);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const auto pair = Kind::pair(x + m * c.x_stride + k);
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) sum[m][p] = Kind::step(panel[p], pair, sum[m][p]);
      }
    }
  }
  if (c.k % 2 != 0)
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p)
        sum[m][p] = Kind::last(w + p * c.panel_stride, x + m * c.x_stride + c.k - 1, sum[m][p]);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      const std::int64_t left = c.columns - (first_panel + p) * kPanelRows;
      const std::int64_t live = left < kPanelRows ? left : kPanelRows;
      float* to = y + m * c.y_stride + p * kPanelRows;
      Vec v = sum[m][p];
      if (c.mode != TileMode::resume && c.bias != nullptr)
        v = add(v, load_first(c.bias + (first_panel + p) * kPanelRows, live));
      if (c.mode == TileMode::add) v = add(load_first(to, live), v);
      if (live == kPanelRows)
        store(to, v);
      else
        store_first(to, v, live);
    }
}

/// `count` tokens, 1 .. M, in one tile.
template <class Kind, int P, int M>
inline void tile_of(const TileCall& c, std::int64_t panel, std::int64_t token, std::int64_t count) {
  if constexpr (M > 1) {
    if (count < M) return tile_of<Kind, P, M - 1>(c, panel, token, count);
  }
  tile<Kind, P, M>(c, panel, token);
}

template <class Kind, int P, int M>
inline void sweep(const TileCall& c, std::int64_t panel) {
  for (; panel + P <= c.panels; panel += P)
    for (std::int64_t token = 0; token < c.tokens; token += M)
      tile_of<Kind, P, M>(c, panel, token, c.tokens - token < M ? c.tokens - token : M);
  if constexpr (P > 1) {
    if (panel < c.panels) sweep<Kind, P / 2, M>(c, panel);
  }
}

template <class Kind>
void tiles(const TileCall& c) {
  if (c.tokens == 1)
    sweep<Kind, kPanelsOne, 1>(c, 0);
  else if (c.tokens <= kTokensFew)
    sweep<Kind, kPanelsFew, kTokensFew>(c, 0);
  else
    sweep<Kind, kPanelsMany, kTokensMany>(c, 0);
}

// ---- rows -----------------------------------------------------------------------------------------------------

/// max over x[0, n), then exp(scale * (x - max)) handed to `put(i, vector)`, which returns what counts; the sum.
template <class Put>
inline float softmax(const float* x, std::int64_t n, float scale, Put put) {
  Vec top = keep_first(load(x), n < 16 ? n : 16, -INFINITY);
  for (std::int64_t i = 16; i < n; i += 16)
    top = maximum(top, keep_first(load(x + i), n - i < 16 ? n - i : 16, -INFINITY));
  const Vec largest = broadcast(largest_lane(top)), factor = broadcast(scale);
  Vec sum = zero();
  for (std::int64_t i = 0; i < n; i += 16) {
    const Vec e = exponential(multiply(subtract(load(x + i), largest), factor));
    sum = add(sum, put(i, keep_first(e, n - i < 16 ? n - i : 16, 0.0f)));
  }
  return sum_lanes(sum);
}

float softmax_f32(float* x, std::int64_t n, float scale) {
  return softmax(x, n, scale, [x](std::int64_t i, Vec e) {
    store(x + i, e);
    return e;
  });
}

/// Vectors are read 64 bytes apart and written 32 bytes apart, so that no entry is overwritten before it is read.
[[maybe_unused]] float softmax_bf16(float* x, std::int64_t n, float scale) {
  std::uint16_t* out = reinterpret_cast<std::uint16_t*>(x);
  return softmax(x, n, scale, [out](std::int64_t i, Vec e) {
    store_bf16(out + i, e);
    return round_to_bf16(e);
  });
}

inline std::int64_t lanes(std::int64_t n, std::int64_t i) { return n - i < 16 ? n - i : 16; }

inline Vec load_bf16_first(const std::uint16_t* p, std::int64_t n) {
  if (n == 16) return load_bf16(p);
  std::uint16_t copy[16] = {};
  std::memcpy(copy, p, static_cast<std::size_t>(n) * 2);
  return load_bf16(copy);
}
inline void store_bf16_first(std::uint16_t* p, Vec v, std::int64_t n) {
  if (n == 16) return store_bf16(p, v);
  std::uint16_t copy[16];
  store_bf16(copy, v);
  std::memcpy(p, copy, static_cast<std::size_t>(n) * 2);
}
inline void store_as(void* y, bool bf16, std::int64_t i, Vec v, std::int64_t n) {
  if (bf16)
    store_bf16_first(static_cast<std::uint16_t*>(y) + i, v, n);
  else
    store_first(static_cast<float*>(y) + i, v, n);
}

inline float root_of_mean_square(Vec squares, std::int64_t width, float eps) {
  return 1.0f / std::sqrt(sum_lanes(squares) / static_cast<float>(width) + eps);
}

void rms_norm(const RmsNormRow& c) {
  Vec squares = zero();
  for (std::int64_t i = 0; i < c.width; i += 16) {
    const std::int64_t n = lanes(c.width, i);
    Vec v = load_first(c.x + i, n);
    if (c.addend != nullptr) {
      v = add(v, c.addend_is_bf16 ? load_bf16_first(static_cast<const std::uint16_t*>(c.addend) + i, n)
                                  : load_first(static_cast<const float*>(c.addend) + i, n));
      store_first(c.x + i, v, n);
    }
    squares = fma(v, v, squares);
  }
  const Vec factor = broadcast(root_of_mean_square(squares, c.width, c.eps));
  for (std::int64_t i = 0; i < c.width; i += 16) {
    const std::int64_t n = lanes(c.width, i);
    store_as(c.y, c.y_is_bf16, i, multiply(multiply(load_first(c.x + i, n), factor), load_first(c.weight + i, n)), n);
  }
}

void head(const HeadCall& c) {
  if (c.weight != nullptr) {
    rms_norm({c.x, nullptr, false, c.weight, c.eps, c.head_dim, c.x, false});
  }
  for (std::int64_t i = 0; i < c.half_dim; i += 16) {
    const std::int64_t n = lanes(c.half_dim, i);
    const Vec a = load_first(c.x + i, n), b = load_first(c.x + c.half_dim + i, n);
    const Vec cosine = load_first(c.cosine + i, n), sine = load_first(c.sine + i, n);
    store_first(c.x + i, subtract(multiply(a, cosine), multiply(b, sine)), n);
    store_first(c.x + c.half_dim + i, add(multiply(b, cosine), multiply(a, sine)), n);
  }
}

void silu_mul(const float* gate, const float* up, std::int64_t count, void* y, bool y_is_bf16) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const std::int64_t n = lanes(count, i);
    const Vec g = load_first(gate + i, n);
    const Vec sigmoid_inverse = add(broadcast(1.0f), exponential(subtract(zero(), g)));
    store_as(y, y_is_bf16, i, multiply(divide(g, sigmoid_inverse), load_first(up + i, n)), n);
  }
}

void to_bf16(const float* x, std::int64_t count, std::uint16_t* y) {
  for (std::int64_t i = 0; i < count; i += 16)
    store_bf16_first(y + i, load_first(x + i, lanes(count, i)), lanes(count, i));
}

void from_bf16(const std::uint16_t* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; i += 16)
    store_first(y + i, load_bf16_first(x + i, lanes(count, i)), lanes(count, i));
}

void scale_add(const float* x, float factor, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const std::int64_t n = lanes(count, i);
    store_first(y + i, fma(broadcast(factor), load_first(x + i, n), load_first(y + i, n)), n);
  }
}

void scale(const float* x, float factor, std::int64_t count, void* y, bool y_is_bf16) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const std::int64_t n = lanes(count, i);
    store_as(y, y_is_bf16, i, multiply(broadcast(factor), load_first(x + i, n)), n);
  }
}

constexpr OpsKernels fp32_kernels() {
  OpsKernels k;
  k.tile_bf16_f32 = tiles<Bf16TimesF32>;
  k.tile_f32_f32 = tiles<F32TimesF32>;
  k.softmax_f32 = softmax_f32;
  k.rms_norm = rms_norm;
  k.head = head;
  k.silu_mul = silu_mul;
  k.to_bf16 = to_bf16;
  k.from_bf16 = from_bf16;
  k.scale_add = scale_add;
  k.scale = scale;
  return k;
}

}  // namespace
}  // namespace fourfold::cpu
