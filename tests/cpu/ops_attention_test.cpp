// Attention over the cache against double precision; bits of a token alone and in a batch; nothing leaks from later
// positions or stale memory.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/float16.h"
#include "cpu/ops_isas.h"

namespace fourfold::test {
namespace {

struct Shape {
  std::int64_t heads, kv_heads, head_dim, capacity;
  std::int64_t row() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// 64-aligned bytes, all ones: NaN as bf16 and as fp32.
class Poisoned {
 public:
  explicit Poisoned(std::uint64_t bytes) : storage_(bytes + 64, std::byte{0xff}) {}
  std::byte* data() {
    return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(storage_.data()) + 63) / 64 * 64);
  }

 private:
  std::vector<std::byte> storage_;
};

class OpsAttention : public OpsTest {
 protected:
  /// Runs tokens of `qkv` in pieces of the given sizes through a fresh cache, with no norms and no rotation.
  std::vector<float> attend(const Shape& s, DType dtype, std::vector<float> qkv,
                            const std::vector<std::int64_t>& pieces) {
    KvCacheView cache;
    cache.dtype = dtype;
    cache.kv_heads = s.kv_heads;
    cache.head_dim = s.head_dim;
    cache.capacity = s.capacity;
    Poisoned memory(ops->kv_cache_bytes(cache)), scratch(ops->attention_scratch_bytes(cache, s.heads));
    cache.data = memory.data();
    std::vector<float> out;
    std::int64_t past = 0;
    for (const std::int64_t tokens : pieces) {
      PrepareQkvCall prepare;
      prepare.qkv = qkv.data() + past * s.row();
      prepare.tokens = tokens;
      prepare.past = past;
      prepare.heads = s.heads;
      prepare.cache = cache;
      ops->prepare_qkv(prepare);
      std::vector<std::byte> piece(static_cast<std::size_t>(tokens * s.heads * s.head_dim * 4), std::byte{0xff});
      AttentionCall call;
      call.qkv = prepare.qkv;
      call.tokens = tokens;
      call.past = past;
      call.heads = s.heads;
      call.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)));
      call.cache = cache;
      call.out = piece.data();
      call.scratch = scratch.data();
      ops->attention(call);
      for (std::int64_t i = 0; i < tokens * s.heads * s.head_dim; ++i)
        out.push_back(dtype == DType::bf16 ? bf16_to_float(reinterpret_cast<const std::uint16_t*>(piece.data())[i])
                                           : reinterpret_cast<const float*>(piece.data())[i]);
      past += tokens;
    }
    return out;
  }
};

/// One output in double precision, over keys and values as the cache holds them.
double exact(const Shape& s, DType dtype, const std::vector<float>& qkv, std::int64_t token, std::int64_t head,
             std::int64_t dim) {
  const auto cached = [&](float v) { return double{dtype == DType::bf16 ? bf16_to_float(float_to_bf16(v)) : v}; };
  const auto at = [&](std::int64_t t, std::int64_t h, std::int64_t d) {
    return qkv[static_cast<std::size_t>(t * s.row() + h * s.head_dim + d)];
  };
  const std::int64_t kv = head / (s.heads / s.kv_heads);
  std::vector<double> scores;
  for (std::int64_t p = 0; p <= token; ++p) {
    double score = 0;
    for (std::int64_t d = 0; d < s.head_dim; ++d) score += double{at(token, head, d)} * cached(at(p, s.heads + kv, d));
    scores.push_back(score / std::sqrt(static_cast<double>(s.head_dim)));
  }
  const double top = *std::ranges::max_element(scores);
  double sum = 0, value = 0;
  for (std::int64_t p = 0; p <= token; ++p) {
    const double weight = std::exp(scores[static_cast<std::size_t>(p)] - top);
    sum += weight;
    value += weight * cached(at(p, s.heads + s.kv_heads + kv, dim));
  }
  return value / sum;
}

constexpr Shape kShapes[] = {{4, 2, 64, 40}, {2, 2, 16, 33}, {6, 1, 24, 64}, {16, 1, 32, 50}, {1, 1, 2, 35}};

// Entries lie in [-1, 1). fp32: a score is off by head_dim + 3 roundings of at most head_dim^(1/2) after scaling, which
// moves a weight by that much relatively, the weighted average of entries below 1 by twice that; the sum adds a
// rounding a position. bf16: q rounds by 2^-9 relatively, so a score (in size below head_dim^(1/2), as a sum of
// head_dim terms of random sign about 1/3 each) by at most 2^-9 head_dim^(1/2), a probability by 2^-9 and the output by
// 2^-9.
double bound_of(const Shape& s, DType dtype, std::int64_t positions) {
  const double root = std::sqrt(static_cast<double>(s.head_dim));
  const double fp32 = (2 * (static_cast<double>(s.head_dim) + 3) * root + 2 * static_cast<double>(positions)) * 0x1p-23;
  return dtype == DType::f32 ? fp32 : fp32 + 0x1p-9 * (2 * root + 2);
}

TEST_P(OpsAttention, MatchesDoublePrecision) {
  for (const Shape& s : kShapes)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t tokens = 33;
      const std::vector<float> qkv = Noise(7).vector(tokens * s.row());
      const std::vector<float> out = attend(s, dtype, qkv, {9, 1, 23});
      ASSERT_EQ(static_cast<std::int64_t>(out.size()), tokens * s.heads * s.head_dim);
      double worst = 0;
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t h = 0; h < s.heads; ++h)
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            const double got = out[static_cast<std::size_t>((t * s.heads + h) * s.head_dim + d)];
            const double error = std::abs(got - exact(s, dtype, qkv, t, h, d));
            worst = std::isnan(error) ? INFINITY : std::max(worst, error);
          }
      EXPECT_LE(worst, bound_of(s, dtype, tokens)) << "heads " << s.heads << " dim " << s.head_dim << dtype_name(dtype);
    }
}

TEST_P(OpsAttention, ATokenHasTheSameBitsInEveryBatch) {
  for (const Shape& s : kShapes)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<float> qkv = Noise(8).vector(33 * s.row());
      const std::vector<float> alone = attend(s, dtype, qkv, std::vector<std::int64_t>(33, 1));
      for (const std::vector<std::int64_t>& pieces : {std::vector<std::int64_t>{33}, {2, 31}, {16, 17}, {13, 1, 19}}) {
        const std::vector<float> batch = attend(s, dtype, qkv, pieces);
        ASSERT_EQ(batch.size(), alone.size());
        EXPECT_EQ(std::memcmp(batch.data(), alone.data(), alone.size() * 4), 0) << "dim " << s.head_dim;
      }
    }
}

TEST_P(OpsAttention, LaterTokensNanDoesNotReachEarlierOnes) {
  for (const Shape& s : kShapes)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::vector<float> qkv = Noise(9).vector(33 * s.row());
      const std::vector<float> clean = attend(s, dtype, qkv, {33});
      const std::int64_t bad = 17;
      std::fill_n(qkv.begin() + bad * s.row(), s.row(), NAN);
      const std::vector<float> out = attend(s, dtype, qkv, {33});
      const std::int64_t width = s.heads * s.head_dim;
      EXPECT_EQ(std::memcmp(out.data(), clean.data(), static_cast<std::size_t>(bad * width) * 4), 0);
      for (std::int64_t i = bad * width; i < 33 * width; ++i) ASSERT_TRUE(std::isnan(out[static_cast<std::size_t>(i)]));
    }
}

TEST_P(OpsAttention, NormsAndRotatesHeads) {
  const Shape s{2, 1, 8, 16};
  const std::vector<float> x = Noise(10).vector(s.row());
  const std::vector<float> q_norm{1, 2, 3, 4, 5, 6, 7, 8};
  const std::int64_t half = 4, position = 3;
  std::vector<float> cosine(16 * 4), sine(16 * 4);
  for (std::size_t i = 0; i < cosine.size(); ++i) {
    cosine[i] = static_cast<float>(std::cos(0.1 * static_cast<double>(i)));
    sine[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i)));
  }
  std::vector<float> qkv = x;
  PrepareQkvCall call;
  call.cache.dtype = DType::f32;
  call.cache.kv_heads = 1;
  call.cache.head_dim = 8;
  call.cache.capacity = 16;
  Poisoned memory(ops->kv_cache_bytes(call.cache));
  call.cache.data = memory.data();
  call.qkv = qkv.data();
  call.tokens = 1;
  call.past = position;
  call.heads = 2;
  call.q_norm = q_norm.data();
  call.eps = 1e-6f;
  call.rope = {16, half, cosine.data(), sine.data()};
  ops->prepare_qkv(call);
  for (std::int64_t h = 0; h < 2; ++h) {
    double squares = 0;
    for (std::int64_t d = 0; d < 8; ++d) squares += std::pow(double{x[static_cast<std::size_t>(h * 8 + d)]}, 2);
    const double factor = 1 / std::sqrt(squares / 8 + 1e-6);
    for (std::int64_t d = 0; d < half; ++d) {
      const double a = x[static_cast<std::size_t>(h * 8 + d)] * factor * (static_cast<double>(d) + 1);
      const double b = x[static_cast<std::size_t>(h * 8 + d + half)] * factor * (static_cast<double>(d) + 5);
      const double c = cosine[static_cast<std::size_t>(position * half + d)],
                   sn = sine[static_cast<std::size_t>(position * half + d)];
      // about ten roundings of fp32 on values below 32
      EXPECT_NEAR(qkv[static_cast<std::size_t>(h * 8 + d)], a * c - b * sn, 10 * 32 * 0x1p-24);
      EXPECT_NEAR(qkv[static_cast<std::size_t>(h * 8 + d + half)], b * c + a * sn, 10 * 32 * 0x1p-24);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, OpsAttention, ::testing::ValuesIn(machine_isas()), isa_of);

}  // namespace
}  // namespace fourfold::test
