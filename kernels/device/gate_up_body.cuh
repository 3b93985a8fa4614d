// The first projection and the activation on tensor cores: what gate_up_tiles.cu does.
#pragma once

#include "device/activation.cuh"
#include "device/warp_stream.cuh"

namespace fourfold::kernels {

/// Item j of every warp of a block is the block's item j: the eight warps share it by taking every eighth block of 64
/// positions, so the order in which a sum is made depends on H alone, never on the batch.
template <int kRowTiles>
struct GateUpWork {
  const GateUpTilesParams* p;
  Int32 row_blocks, items, warp;

  __device__ bool item(Int32 ordinal, StreamItem& item) const {
    const Int64 index = blockIdx.x + static_cast<Int64>(ordinal) * gridDim.x;
    if (index >= items) return false;
    const Int32 tile = static_cast<Int32>(index) / row_blocks;
    item.row_tile = (static_cast<Int32>(index) - tile * row_blocks) * kRowTiles;
    item.tokens = p->tiles[tile];
    return true;
  }
  __device__ Int32 source_row(const StreamItem& item, Int32 row) const {
    return p->sorted_routes[item.tokens.begin + row] / p->top_k;
  }
  __device__ const UnitMatrix& matrix() const { return p->gate_up; }
  __device__ const UInt16* activations() const { return p->x; }
  __device__ Int32 depth() const { return p->hidden; }
  __device__ Int32 first_block() const { return warp; }
  __device__ Int32 block_step() const { return kTileWarps; }
};

template <Format kFormat, Float16 kFloat>
__device__ inline float projected(const GateUpTilesParams& p, float sum, Int64 expert, Int32 part, Int32 row,
                                  float weight) {
  float value = __fmul_rn(sum, kOperandFactor<kFormat, kFloat>);
  if (kFormat == Format::nvfp4) value = __fmul_rn(p.gate_up.global[expert * p.gate_up.global_expert_floats + part], value);
  if (p.router_weight_on_input) value = __fmul_rn(weight, value);
  return p.gate_up.bias ? __fadd_rn(value, p.gate_up.bias[expert * p.gate_up.bias_expert_floats + row]) : value;
}

/// One pair of sums of a fragment: rows g and g + 8 of a row tile, one token.
template <Format kFormat, Float16 kFloat>
__device__ inline void store_pair(const GateUpTilesParams& p, const StreamItem& item, Int32 row_tile, Int32 g,
                                  Int32 column, float low, float high) {
  if (row_tile >= p.gate_up.row_tiles || column >= item.tokens.count) return;
  const Int64 position = item.tokens.begin + column;
  const float weight = p.router_weight_on_input ? p.topk_weights[p.sorted_routes[position]] : 1.0f;
  const Int64 expert = item.tokens.expert;
  UInt16* row = p.activated + position * p.intermediate;  // [I]
  if (static_cast<Activation>(p.activation) == Activation::relu2) {
    const Int32 i = 16 * row_tile + g;
    const float first = projected<kFormat, kFloat>(p, low, expert, 0, i, weight);
    if (i < p.intermediate) row[i] = narrow<kFloat>(activate_as(p, 0.0f, first));
    if (i + 8 >= p.intermediate) return;
    row[i + 8] = narrow<kFloat>(activate_as(p, 0.0f, projected<kFormat, kFloat>(p, high, expert, 0, i + 8, weight)));
  } else {
    const Int32 i = 8 * row_tile + g;
    const float gate = projected<kFormat, kFloat>(p, low, expert, 0, i, weight);
    const float up = projected<kFormat, kFloat>(p, high, expert, 1, p.intermediate + i, weight);
    row[i] = narrow<kFloat>(activate_as(p, gate, up));
  }
}

/// Adds the warps' sums in order of the warp and stores. All threads of the block, with their warp's sums of one item.
template <Format kFormat, Float16 kFloat, int kRowTiles, int kSteps>
__device__ inline void finish_gate_up(const GateUpTilesParams& p, const StreamItem& item, int steps,
                                      const float (&acc)[kRowTiles][kSteps][4], float* sums) {
  const Int32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Int32 slot = threadIdx.x / 64, half = threadIdx.x / 32 % 2;  // this thread finishes c[half] and c[half + 2]
  constexpr int kFragments = kRowTiles * kSteps;
#pragma unroll
  for (int first = 0; first < kFragments; first += kSumFragments) {
    __syncthreads();  // the sums of the group before have been read
#pragma unroll
    for (int i = 0; i < kSumFragments; ++i) {
      if (first + i >= kFragments) break;
      const int tile = (first + i) / kSteps, n = (first + i) % kSteps;
      if (n > 0 && n >= steps) continue;
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[((warp * kSumFragments + i) * 4 + c) * 32 + lane] = acc[tile][n][c];
    }
    __syncthreads();
    const Int32 tile = (first + slot) / kSteps, n = (first + slot) % kSteps;
    if (first + slot >= kFragments || n >= steps) continue;
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int w = 0; w < kTileWarps; ++w) {
      const float* fragment = sums + ((w * kSumFragments + slot) * 4 + half) * 32 + lane;
      low = __fadd_rn(low, fragment[0]);
      high = __fadd_rn(high, fragment[64]);
    }
    store_pair<kFormat, kFloat>(p, item, item.row_tile + tile, lane / 4, kTokenStep * n + 2 * (lane % 4) + half, low,
                                high);
  }
}

template <Format kFormat, Float16 kFloat, int kSpans, int kRowTiles, int kSteps, int kStages>
__device__ inline void gate_up_tiles_body(const GateUpTilesParams& p) {
  extern __shared__ uint4 shared_memory[];
  float* sums = reinterpret_cast<float*>(shared_memory);  // kSumBytes, then the rings of the warps
  const StageLayout<kScaleOnSum<kFormat, kFloat>, kRowTiles, kSteps> layout{bytes_of_unit<kFormat>(p.gate_up)};
  const UInt32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const UInt32 ring = shared_address(shared_memory) + kSumBytes + warp * kStages * layout.bytes();

  wait_for_previous_kernel();
  let_next_kernel_start();
  GateUpWork<kRowTiles> work;
  work.p = &p;
  work.row_blocks = (p.gate_up.row_tiles + kRowTiles - 1) / kRowTiles;
  work.items = p.counts[0] * work.row_blocks;
  work.warp = static_cast<Int32>(warp);
  run_stream<GateUpWork<kRowTiles>, kFormat, kFloat, kSpans, kRowTiles, kSteps, kStages, false>(
      work, ring, lane, [&](const StreamItem& item, int steps, const float(&acc)[kRowTiles][kSteps][4]) {
        finish_gate_up<kFormat, kFloat, kRowTiles, kSteps>(p, item, steps, acc, sums);
      });
}

}  // namespace fourfold::kernels
