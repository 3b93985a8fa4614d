// Packs logical 4-bit matrices into units on the host and dequantises them in double: the layout of
// docs/design_tensor_kernels.md written down a second time, as loops over rows and positions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace harness {

enum class Fmt { nvfp4, mxfp4, int4, int4_zp };

inline double e2m1(int c) {
  static const double v[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  return c & 8 ? -v[c & 7] : v[c & 7];
}
inline double e4m3(int b) {
  const int e = b >> 3 & 15, m = b & 7;
  if ((b & 127) == 127) return NAN;
  const double v = e ? std::ldexp(8 + m, e - 10) : std::ldexp(m, -9);
  return b & 128 ? -v : v;
}
inline float bf16_value(uint16_t h) {
  const uint32_t u = uint32_t(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
inline uint16_t to_bf16(double d) {
  float f = float(d);
  uint32_t u;
  std::memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return uint16_t(u >> 16 | 64);
  return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
inline double f16_value(uint16_t h) {
  const int e = h >> 10 & 31, m = h & 1023;
  const double v = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return h & 0x8000 ? -v : v;
}
inline uint16_t to_f16(double d) {
  const uint16_t sign = std::signbit(d) ? 0x8000 : 0;
  d = std::fabs(d);
  if (std::isnan(d)) return sign | 0x7e00;
  if (d >= 65520) return sign | 0x7c00;
  int e = d == 0 ? -14 : std::max(std::ilogb(d), -14);
  const long m = std::lrint(std::ldexp(d, 10 - e));  // ties to even
  return uint16_t(sign | (m >= 1024 ? ((e + 15) << 10) + (m - 1024) : m));
}

/// Codes and raw scales of [experts][n][d] in logical order.
struct Matrix {
  Fmt fmt;
  int experts, n, d, group;  // group 0: the row
  int scale_type = 0;        // int4: 0 bf16, 1 f16, 2 f32
  int parts = 1;
  std::vector<uint8_t> codes;    // one a byte
  std::vector<uint32_t> scales;  // raw bits
  std::vector<uint8_t> zeros;
  std::vector<float> global;  // [experts][parts]
  int group_size() const { return group ? group : d; }
  int groups() const { return (d + group_size() - 1) / group_size(); }
  bool e2m1_codes() const { return fmt == Fmt::nvfp4 || fmt == Fmt::mxfp4; }
  double scale(size_t row, int g) const {
    const uint32_t b = scales[row * groups() + g];
    if (fmt == Fmt::nvfp4) return e4m3(int(b));
    if (fmt == Fmt::mxfp4) return b == 255 ? NAN : std::ldexp(1.0, int(b) - 127);
    if (scale_type == 0) return bf16_value(uint16_t(b));
    if (scale_type == 1) return f16_value(uint16_t(b));
    float f;
    std::memcpy(&f, &b, 4);
    return f;
  }
  double weight(int e, int r, int k) const {
    const size_t row = size_t(e) * n + r;
    const int g = k / group_size(), c = codes[row * d + k];
    double v = e2m1_codes() ? e2m1(c) : c - (fmt == Fmt::int4_zp ? zeros[row * groups() + g] : 8);
    v *= scale(row, g);
    if (fmt == Fmt::nvfp4) v *= global[size_t(e) * parts + (parts == 2 && r >= n / 2)];
    return v;
  }
};

/// Where bit b of the code in half h of pair j (0 .. 7) of two words lies (kernels/device/unpack.cuh).
inline void pair_bit(int j, int h, int b, int* word, int* bit) {
  const int rotation[4] = {0, 4, 10, j == 3 ? 6 : 12};
  const int at = 16 * h + (b == 3 ? 15 : 6 + b);
  const int q = (at - rotation[j & 3] + 32) % 32;
  if ((j & 3) < 3) {
    *word = j >> 2;
    *bit = q;
  } else if (0x06030603u >> q & 1) {
    *word = 0;
    *bit = q;
  } else {
    *word = 1;
    *bit = (q + 30) % 32;
  }
}

struct Packed {
  std::vector<uint8_t> bytes;
  int row_tiles, depth_blocks, unit_bytes, span;
  int64_t expert_bytes;
};

inline int span_of(const Matrix& m) {
  if (m.fmt == Fmt::nvfp4) return 16;
  if (m.fmt == Fmt::mxfp4) return 32;
  return m.group ? std::gcd(m.group, 64) : 64;
}
inline int scale_bytes_of(const Matrix& m) { return m.e2m1_codes() ? 1 : m.scale_type == 2 ? 4 : 2; }
inline int unit_bytes_of(const Matrix& m) {
  const int scales = 16 * 64 / span_of(m);
  return 512 + scales * scale_bytes_of(m) + (m.fmt == Fmt::int4_zp ? scales : 0);
}

/// gated: a row tile is 8 gate rows and the 8 up rows that belong to them.
inline Packed pack(const Matrix& m, bool gated, bool bf16) {
  Packed p;
  p.row_tiles = gated ? m.n / 16 : (m.n + 15) / 16;
  p.depth_blocks = (m.d + 63) / 64;
  p.unit_bytes = unit_bytes_of(m);
  p.span = span_of(m);
  p.expert_bytes = int64_t(p.row_tiles) * p.depth_blocks * p.unit_bytes;
  p.bytes.assign(p.expert_bytes * m.experts, 0);
  const int spans = 64 / p.span, sb = scale_bytes_of(m);
  for (int e = 0; e < m.experts; ++e)
    for (int tile = 0; tile < p.row_tiles; ++tile)
      for (int block = 0; block < p.depth_blocks; ++block) {
        uint8_t* unit = &p.bytes[e * p.expert_bytes + (int64_t(tile) * p.depth_blocks + block) * p.unit_bytes];
        auto row_of = [&](int r) {
          const int row = gated ? (r < 8 ? 8 * tile + r : m.n / 2 + 8 * tile + r - 8) : 16 * tile + r;
          return row < m.n ? row : -1;
        };
        auto code = [&](int r, int position) -> int {
          const int row = row_of(r), k = 64 * block + position;
          if (row < 0 || k >= m.d) return 0;
          const size_t at = size_t(e) * m.n + row;
          const int c = m.codes[at * m.d + k];
          if (m.fmt != Fmt::nvfp4) return c;
          const uint32_t s = m.scales[at * m.groups() + k / m.group_size()];
          if ((s & 127) == 127) return 0;
          return s & 128 ? c ^ 8 : c;
        };
        for (int lane = 0; lane < 32; ++lane) {
          const int g = lane / 4, t = lane % 4;
          uint32_t words[4] = {};
          for (int s = 0; s < 4; ++s)
            for (int r = 0; r < 4; ++r)
              for (int h = 0; h < 2; ++h) {
                const int position = (m.fmt == Fmt::nvfp4 ? 16 * t + 4 * s : 16 * s + 4 * t) + 2 * (r / 2) + h;
                const uint32_t c = code(g + 8 * (r & 1), position);
                if (m.e2m1_codes() && bf16) {
                  for (int b = 0; b < 4; ++b) {
                    int word, bit;
                    pair_bit(4 * (s & 1) + r, h, b, &word, &bit);
                    words[s / 2 * 2 + word] |= (c >> b & 1) << bit;
                  }
                } else {
                  words[s] |= c << (4 * r + 16 * h);
                }
              }
          std::memcpy(unit + 16 * lane, words, 16);
        }
        for (int r = 0; r < 16; ++r)
          for (int j = 0; j < spans; ++j) {
            const int row = row_of(r), k = 64 * block + p.span * j;
            uint32_t s = 0, z = 0;
            if (row >= 0 && k < m.d) {
              const size_t at = (size_t(e) * m.n + row) * m.groups() + k / m.group_size();
              s = m.scales[at];
              if (m.fmt == Fmt::int4_zp) z = m.zeros[at];
            }
            if (m.fmt == Fmt::nvfp4) {
              unit[512 + 2 * (4 * (r % 8) + j) + r / 8] = uint8_t((s & 127) == 127 ? 255 : s & 127);
            } else {
              const int index = (r % 8) * 2 * spans + r / 8 * spans + j;
              std::memcpy(unit + 512 + index * sb, &s, sb);
              if (m.fmt == Fmt::int4_zp) unit[512 + 16 * spans * sb + index] = uint8_t(z);
            }
          }
      }
  return p;
}

}  // namespace harness
