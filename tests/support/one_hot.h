// Calls that read weights back: one activation is 1, the others are 0, and the other projection is the identity. The
// result is one weight, so every scale is seen by itself and the right answer is exact.
#pragma once

#include <cstdint>
#include <vector>

#include "support/moe_layer.h"

namespace support {

/// Experts whose projections are an identity and a random matrix, and tokens that read the random one.
struct OneHotCall {
  fourfold::Caps caps;  // top_k 1, relu2; max_tokens: the tokens below
  fourfold::StackedExperts experts;
  fourfold::MoeTensors tensors;
  Bytes expected;  // [T, H], bit by bit

  // What the views look at.
  struct Matrix {
    std::vector<std::uint8_t> codes, zeros;
    Bytes scales;
    std::vector<float> global;
  };
  Matrix gate_up, down;
  Bytes x, ids;
  std::vector<float> weights;
};

enum class Projection { gate_up, down };

/// Reads every weight of `projection` of every expert, positive and negative, once. `format_text`: "nvfp4 bf16", "int4
/// g32 zp f16". `hidden` is at least `intermediate`. gate_up: out = round(max(w, 0)^2) for x = 1 and x = -1, so scales
/// stay where squares are neither infinite nor zero; down: out = round(w).
std::unique_ptr<OneHotCall> one_hot_call(const std::string& format_text, Projection projection, std::int64_t experts,
                                         std::int64_t hidden, std::int64_t intermediate, std::uint64_t seed);

}  // namespace support
