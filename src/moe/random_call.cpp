// Random tokens and routes; std::mt19937_64 has the same sequence on every platform.
#include "moe/random_call.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "core/check.h"
#include "core/float16.h"

namespace fourfold {
namespace {

double uniform(std::mt19937_64& generator) { return static_cast<double>(generator() >> 11) * 0x1p-53; }

/// Sum of 12 uniforms less 6: unit variance, no libm, the same bits everywhere.
double near_normal(std::mt19937_64& generator) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += uniform(generator);
  return sum;
}

void fill_x(RandomCall& call, const Caps& caps, std::int64_t elements, std::mt19937_64& generator) {
  const std::int64_t width = dtype_bits(caps.activation_dtype) / 8;
  call.x.resize(checked_mul(elements, width, "random call x"));
  for (std::int64_t i = 0; i < elements; ++i) {
    const float value = static_cast<float>(near_normal(generator));
    const std::uint16_t half = caps.activation_dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
    if (width == 4)
      std::memcpy(call.x.data() + i * 4, &value, 4);
    else
      std::memcpy(call.x.data() + i * 2, &half, 2);
  }
}

std::vector<std::int64_t> random_ids(const Caps& caps, std::int64_t tokens, std::mt19937_64& generator) {
  std::vector<std::int64_t> ids(checked_mul(tokens, caps.top_k, "random call ids")), all(caps.id_count());
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t token = 0; token < tokens; ++token)
    for (std::int64_t slot = 0; slot < caps.top_k; ++slot) {
      const std::int64_t first = caps.top_k <= caps.id_count() ? slot : 0;  // a partial Fisher-Yates shuffle
      std::swap(all[first], all[first + generator() % (all.size() - first)]);
      ids[token * caps.top_k + slot] = all[first];
    }
  return ids;
}

void plant_dead_ids(std::vector<std::int64_t>& ids, const Caps& caps, std::int64_t tokens, bool wide) {
  const std::int64_t low = std::numeric_limits<std::int32_t>::min(), high = std::numeric_limits<std::int32_t>::max();
  // 2^32 + 1 would be a valid id if somebody cut it to 32 bits.
  const std::int64_t out_of_range[] = {caps.id_count(), -2, high, low, wide ? (1ll << 32) + 1 : high};
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (token % 3 == 1) ids[token * caps.top_k] = -1;
    if (token % 5 == 2) ids[token * caps.top_k + caps.top_k - 1] = out_of_range[token / 5 % 5];
  }
}

}  // namespace

RandomCall random_call(const Caps& caps, std::int64_t tokens, std::uint64_t seed, const RandomCallOptions& options) {
  check(tokens >= 0 && caps.top_k > 0 && caps.id_count() > 0, ErrorCode::usage,
        "random call: tokens {} must not be negative, top_k {} and experts {} must be positive", tokens, caps.top_k,
        caps.id_count());
  std::mt19937_64 generator(seed);
  RandomCall call;
  fill_x(call, caps, checked_mul(tokens, caps.hidden, "random call x"), generator);
  std::vector<std::int64_t> ids = random_ids(caps, tokens, generator);
  if (options.plant_dead_ids) plant_dead_ids(ids, caps, tokens, options.ids_are_64_bit);
  const std::size_t width = options.ids_are_64_bit ? 8 : 4;
  call.topk_ids.resize(ids.size() * width);
  for (std::size_t i = 0; i < ids.size(); ++i)  // little-endian: the low bytes of an i64 are the i32
    std::memcpy(call.topk_ids.data() + i * width, &ids[i], width);
  call.topk_weights.resize(ids.size());
  for (std::int64_t token = 0; token < tokens; ++token) {
    float* row = call.topk_weights.data() + token * caps.top_k;
    float sum = 0;
    for (std::int64_t slot = 0; slot < caps.top_k; ++slot)
      sum += row[slot] = static_cast<float>(0.05 + 0.95 * uniform(generator));
    for (std::int64_t slot = 0; slot < caps.top_k; ++slot) row[slot] /= sum;
  }
  MoeTensors& tensors = call.tensors;
  tensors.x = ConstTensorView(call.x.data(), caps.activation_dtype, {tokens, caps.hidden});
  tensors.topk_ids =
      ConstTensorView(call.topk_ids.data(), options.ids_are_64_bit ? DType::i64 : DType::i32, {tokens, caps.top_k});
  tensors.topk_weights = ConstTensorView(call.topk_weights.data(), DType::f32, {tokens, caps.top_k});
  if (caps.global_experts > 0) {
    call.expert_map.assign(caps.global_experts, -1);
    for (std::int64_t i = 0; i < std::min(caps.experts, caps.global_experts); ++i) call.expert_map[i] = i;
    for (std::int64_t i = caps.global_experts - 1; i > 0; --i)
      std::swap(call.expert_map[i], call.expert_map[generator() % (i + 1)]);
    tensors.expert_map = ConstTensorView(call.expert_map.data(), DType::i32, {caps.global_experts});
  }
  return call;
}

}  // namespace fourfold
