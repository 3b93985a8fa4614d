// Sixteen fp32 lanes in plain C++: the vocabulary of ops_rows.h for any machine. A multiply and an add, not fused.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/float16.h"

namespace fourfold::cpu {
namespace {

struct Vec {
  float lane[16];
};
inline constexpr int kPanelsOne = 1, kPanelsFew = 1, kPanelsMany = 1;
inline constexpr int kTokensFew = 1, kTokensMany = 1;

template <class Function>
inline Vec each(Function function) {
  Vec v;
  for (int i = 0; i < 16; ++i) v.lane[i] = function(i);
  return v;
}
inline Vec broadcast(float x) {
  return each([&](int) { return x; });
}
inline Vec zero() { return broadcast(0.0f); }
inline Vec load(const float* p) {
  return each([&](int i) { return p[i]; });
}
inline void store(float* p, Vec v) { std::memcpy(p, v.lane, sizeof v.lane); }
inline Vec load_first(const float* p, std::int64_t n) {
  return each([&](int i) { return i < n ? p[i] : 0.0f; });
}
inline void store_first(float* p, Vec v, std::int64_t n) {
  for (std::int64_t i = 0; i < n && i < 16; ++i) p[i] = v.lane[i];
}
inline Vec keep_first(Vec v, std::int64_t n, float other) {
  return each([&](int i) { return i < n ? v.lane[i] : other; });
}
inline Vec add(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec subtract(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec multiply(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec divide(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
/// max(a, b) per lane; b where either is NaN.
inline Vec maximum(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec minimum(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec nearest(Vec a) {
  return each([&](int i) { return std::nearbyintf(a.lane[i]); });
}
/// a * 2^n for whole n within -252 .. 252.
inline Vec scale_by_power(Vec a, Vec n) {
  return each(
      [&](int i) { return n.lane[i] == n.lane[i] ? std::ldexp(a.lane[i], static_cast<int>(n.lane[i])) : n.lane[i]; });
}
/// Lanes i and i + 1 of 16 bf16 pairs as two vectors.
inline void load_pairs(const void* p, Vec& even, Vec& odd) {
  std::uint16_t pairs[32];
  std::memcpy(pairs, p, sizeof pairs);
  even = each([&](int i) { return bf16_to_float(pairs[2 * i]); });
  odd = each([&](int i) { return bf16_to_float(pairs[2 * i + 1]); });
}
inline Vec load_bf16(const std::uint16_t* p) {
  return each([&](int i) { return bf16_to_float(p[i]); });
}
/// Nearest even; NaN stays a quiet NaN.
inline void store_bf16(std::uint16_t* p, Vec v) {
  for (int i = 0; i < 16; ++i) p[i] = float_to_bf16(v.lane[i]);
}
inline Vec round_to_bf16(Vec v) {
  return each([&](int i) { return bf16_to_float(float_to_bf16(v.lane[i])); });
}

}  // namespace
}  // namespace fourfold::cpu
