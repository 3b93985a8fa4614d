// Token ids in, logits out: embedding, layers, final norm, head, over one key/value cache, in chunks of bounded size.
#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/backend_interface.h"
#include "core/check.h"

namespace fourfold {

namespace {

StepSizes with_scratch(const Ops& ops, const DecoderWeights& weights, const KvCacheView& shape) {
  StepSizes sizes = weights.sizes;
  sizes.scratch_bytes = decoder_scratch_bytes(ops, weights, shape);
  return sizes;
}

std::int64_t logits_bytes(std::int64_t rows, std::int64_t vocabulary) {
  return checked_mul(checked_mul(rows, vocabulary, "logits"), 4, "logits");
}

}  // namespace

std::uint64_t decoder_scratch_bytes(const Ops& ops, const DecoderWeights& weights, const KvCacheView& shape) {
  const StepSizes& s = weights.sizes;
  const std::int64_t widest = std::max({s.hidden, s.attended, s.intermediate});
  const std::int64_t heads = weights.layers.empty() ? shape.kv_heads : weights.layers.front().heads;
  return std::max(ops.matmul_scratch_bytes(widest, s.activations), ops.attention_scratch_bytes(shape, heads));
}

Decoder::Decoder(std::shared_ptr<Backend> backend, DecoderWeights weights, const KvCacheView& shape)
    : backend_(std::move(backend)),
      ops_(backend_->interface().ops()),
      weights_(std::move(weights)),
      cache_(*backend_, ops_, static_cast<std::int64_t>(weights_.layers.size()), shape),
      buffers_(with_scratch(ops_, weights_, shape), *backend_),
      rope_(Workspace::allocate(static_cast<std::uint64_t>(logits_bytes(shape.capacity, weights_.rotary_dim)),
                                *backend_)),
      last_logits_(
          Workspace::allocate(static_cast<std::uint64_t>(logits_bytes(1, weights_.embedding->rows())), *backend_)),
      all_logits_(Workspace::allocate(std::uint64_t{0}, *backend_)) {
  make_rope_table();
}

/// As transformers does it: inverse frequencies, angles and their cosines each rounded to fp32 (Su et al., RoFormer,
/// 2021).
void Decoder::make_rope_table() {
  const std::int64_t half = weights_.rotary_dim / 2;
  float* cosine = reinterpret_cast<float*>(rope_.span().data());
  float* sine = cosine + cache_.capacity() * half;
  for (std::int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(weights_.rotary_dim);
    const float frequency = static_cast<float>(1.0 / std::pow(weights_.rope_theta, static_cast<double>(exponent)));
    for (std::int64_t position = 0; position < cache_.capacity(); ++position) {
      const float angle = static_cast<float>(position) * frequency;
      cosine[position * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sine[position * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

std::uint64_t Decoder::weight_bytes() const noexcept {
  std::uint64_t total = weights_.embedding->bytes() + (weights_.head ? weights_.head->bytes() : 0);
  total += weights_.final_norm.span().size();
  for (const Layer& layer : weights_.layers) total += layer.weight_bytes();
  return total;
}

void Decoder::check_ids(std::span<const std::int32_t> ids) const {
  check(!ids.empty(), ErrorCode::usage, "no token ids were given, at least one is needed");
  const auto count = static_cast<std::int64_t>(ids.size());
  check(
      count <= context() - position(), ErrorCode::usage,
      "{} token ids after position {} exceed the context of {}: shorten the text, reset, or load with a larger context",
      count, position(), context());
  for (std::size_t i = 0; i < ids.size(); ++i)
    check(ids[i] >= 0 && ids[i] < vocabulary(), ErrorCode::usage,
          "token id {} at place {} is outside the vocabulary 0 .. {}", ids[i], i, vocabulary() - 1);
}

std::span<const float> Decoder::forward(std::span<const std::int32_t> ids, bool all_positions) {
  check_ids(ids);
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::int64_t rows = all_positions ? count : 1, width = vocabulary();
  const auto bytes = static_cast<std::uint64_t>(logits_bytes(rows, width));
  if (all_positions && all_logits_.span().size() < bytes) all_logits_ = Workspace::allocate(bytes, *backend_);
  auto* logits = reinterpret_cast<float*>((all_positions ? all_logits_ : last_logits_).span().data());
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t chunk = std::min(weights_.sizes.tokens, count - done);
    const bool last = done + chunk == count;
    const std::int64_t wanted = all_positions ? chunk : last ? 1 : 0;
    step(ids.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(chunk)), wanted,
         all_positions ? logits + done * width : logits);
    done += chunk;
  }
  return {logits, static_cast<std::size_t>(rows * width)};
}

void Decoder::step(std::span<const std::int32_t> ids, std::int64_t wanted, float* logits) {
  const std::int64_t hidden = weights_.sizes.hidden;
  LayerStep step;
  step.tokens = static_cast<std::int64_t>(ids.size());
  step.past = cache_.position();
  step.rope.positions = cache_.capacity();
  step.rope.half_dim = weights_.rotary_dim / 2;
  step.rope.cosine = reinterpret_cast<const float*>(rope_.span().data());
  step.rope.sine = step.rope.cosine + step.rope.positions * step.rope.half_dim;
  std::memcpy(buffers_.token_ids, ids.data(), ids.size_bytes());
  ops_.gather_rows(*weights_.embedding, buffers_.token_ids, step.tokens, buffers_.residual);
  const std::size_t layers = weights_.layers.size();
  for (std::size_t index = 0; index < layers; ++index) {
    // after the last layer only the rows whose logits are read matter, for the other layers the keys and values of all
    step.wanted = index + 1 == layers ? std::max<std::int64_t>(wanted, 1) : step.tokens;
    step.cache = cache_.view(static_cast<std::int64_t>(index));
    run_layer(ops_, weights_.layers[index], buffers_, step);
  }
  cache_.advance(step.tokens);
  if (wanted == 0) return;

  RmsNormCall norm;
  norm.x = buffers_.residual + (step.tokens - wanted) * hidden;
  norm.addend = step.addend;
  norm.addend_dtype = norm.y_dtype = weights_.sizes.activations;
  norm.weight = reinterpret_cast<const float*>(weights_.final_norm.span().data());
  norm.eps = weights_.eps;
  norm.rows = wanted;
  norm.width = hidden;
  norm.y = buffers_.x;
  ops_.rms_norm(norm);
  MatmulCall head;
  head.x = buffers_.x;
  head.x_dtype = weights_.sizes.activations;
  head.m = wanted;
  head.y = logits;
  head.scratch = buffers_.scratch;
  ops_.matmul(weights_.head_weight(), head);
}

}  // namespace fourfold
