// Seeded random tokens and routes for one call: what verify compares on and the tests reuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fourfold/moe.h"

namespace fourfold {

struct RandomCallOptions {
  bool ids_are_64_bit = false;
  bool plant_dead_ids = false;  ///< every third token gets a -1, every fifth one an id out of range
};

/// Inputs of one call, owned. Movable; views from tensors() stay valid when it moves.
struct RandomCall {
  std::vector<std::byte> x;              // [T, H] activation dtype, near normal with unit variance
  std::vector<std::byte> topk_ids;       // [T, k] i32 or i64; distinct in a row when k <= id_count
  std::vector<float> topk_weights;       // [T, k] positive, rows sum to 1
  std::vector<std::int32_t> expert_map;  // [global_experts] or empty: each local expert once, as far as there is room
  MoeTensors tensors;                    // x, topk_ids, topk_weights, expert_map
};

/// Pure in (caps, tokens, seed, options). Throws usage for negative sizes and unsupported when they overflow.
RandomCall random_call(const Caps& caps, std::int64_t tokens, std::uint64_t seed,
                       const RandomCallOptions& options = {});

}  // namespace fourfold
