// The second projection on tensor cores: what down_sums.cu and down_rows.cu do.
#pragma once

#include "device/warp_stream.cuh"

namespace fourfold::kernels {

/// An item of a down kernel is one warp's alone: all of I, in order, so the order of a sum depends on I alone.
template <int kRowTiles>
struct DownWork {
  const DownTilesParams* p;

  __device__ Int32 source_row(const StreamItem& item, Int32 row) const { return item.tokens.begin + row; }
  __device__ const UnitMatrix& matrix() const { return p->down; }
  __device__ const UInt16* activations() const { return p->activated; }
  __device__ Int32 depth() const { return p->intermediate; }
  __device__ Int32 first_block() const { return 0; }
  __device__ Int32 block_step() const { return 1; }
};

/// Work of a warp of a block that owns the columns of one slice at a time: every kDownSumsWarps-th token tile of all
/// experts.
template <int kRowTiles>
struct DownSumsWork : DownWork<kRowTiles> {
  Int32 slice, tiles, warp;

  __device__ bool item(Int32 ordinal, StreamItem& item) const {
    const Int32 tile = warp + kDownSumsWarps * ordinal;
    if (tile >= tiles) return false;
    item.row_tile = slice * kRowTiles;
    item.tokens = this->p->tiles[tile];
    return true;
  }
};

/// Work of a warp that shares all (token tile, slice of the panel) pairs with every other warp of the grid.
template <int kRowTiles>
struct DownRowsWork : DownWork<kRowTiles> {
  Int32 first_tile, slices, items, warp;

  __device__ bool item(Int32 ordinal, StreamItem& item) const {
    const Int64 index = static_cast<Int64>(blockIdx.x) * kTileWarps + warp +
                        static_cast<Int64>(ordinal) * gridDim.x * kTileWarps;
    if (index >= items) return false;
    const Int32 tile = static_cast<Int32>(index) / slices;
    item.row_tile = first_tile + (static_cast<Int32>(index) - tile * slices) * kRowTiles;
    item.tokens = this->p->tiles[tile];
    return true;
  }
};

/// From sums to product + bias, for output columns `column` (c = 0, 1) and column + 8 (c = 2, 3) of all token steps.
/// Columns behind the last keep what nobody stores.
template <Format kFormat, Float16 kFloat, int kSteps>
__device__ inline void finish_values(const DownTilesParams& p, Int64 expert, Int32 column, float (&acc)[kSteps][4]) {
  const float global = kFormat == Format::nvfp4 ? p.down.global[expert * p.down.global_expert_floats] : 1.0f;
  float bias[2] = {0.0f, 0.0f};
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (p.down.bias && column + 8 * half < p.hidden)
      bias[half] = p.down.bias[expert * p.down.bias_expert_floats + column + 8 * half];
#pragma unroll
  for (int n = 0; n < kSteps; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float value = __fmul_rn(acc[n][c], kOperandFactor<kFormat, kFloat>);
      if (kFormat == Format::nvfp4) value = __fmul_rn(global, value);
      acc[n][c] = __fadd_rn(value, bias[c / 2]);
    }
}

/// The tokens of one fragment column of a lane.
struct OutputToken {
  Int32 token;   // -1 behind the tile's tokens
  float weight;  // 1 when it went on the input side
};

__device__ inline OutputToken output_token(const DownTilesParams& p, const TokenTile& tokens, Int32 column) {
  if (column >= tokens.count) return {-1, 0.0f};
  const Int32 route = p.sorted_routes[tokens.begin + column];
  return {route / p.top_k, p.router_weight_on_input ? 1.0f : p.topk_weights[route]};
}

/// Columns of a slice in `sums`; the pad moves the rows of neighbouring tokens to other banks.
template <int kRowTiles>
constexpr Int32 kSumStride = kUnitRows * kRowTiles + 8;

/// Whose turn it is to add: a barrier a warp, whose phase ends when the tile before the warp's next has been added. All
/// 32 lanes arrive, so each releases what it wrote itself.
struct Turns {
  UInt32 barriers;  // in shared memory, one of 8 bytes a warp
  UInt32 taken;     // turns that this warp has waited for
  Int32 tile;       // this warp's next

  __device__ void wait() {
    if (tile > 0) barrier_wait(barriers + 8 * (tile % kDownSumsWarps), taken++ % 2);
  }
  __device__ void pass(Int32 tiles) {
    if (tile + 1 < tiles) barrier_arrive(barriers + 8 * ((tile + 1) % kDownSumsWarps));
    tile += kDownSumsWarps;
  }
};

/// Adds an item's products to the sums of its tokens. Tiles take turns, so a token's experts are added in ascending
/// order; a token that an expert has twice takes its slots in order. Everything but the addition happens before the
/// turn. Destroys acc.
template <Format kFormat, Float16 kFloat, int kRowTiles, int kSteps>
__device__ inline void add_in_turn(const DownSumsWork<kRowTiles>& work, Turns& turns, const StreamItem& item, int steps,
                                   float (&acc)[kRowTiles][kSteps][4], float* sums) {
  const DownTilesParams& p = *work.p;
  const Int32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  OutputToken to[kSteps][2];
  bool twice = false;
#pragma unroll
  for (int n = 0; n < kSteps; ++n)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const Int32 column = kTokenStep * n + 2 * t + c;
      to[n][c] = output_token(p, item.tokens, column);
      if (column > 0 && to[n][c].token >= 0)  // slots of one token lie side by side
        twice = twice || p.sorted_routes[item.tokens.begin + column - 1] / p.top_k == to[n][c].token;
    }
  twice = __any_sync(0xffffffffu, twice);
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
    const Int32 column = kUnitRows * (item.row_tile + tile) + g;
    finish_values<kFormat, kFloat, kSteps>(p, item.tokens.expert, column, acc[tile]);
  }

  turns.wait();
  __syncwarp();
  const int columns = twice ? kTokenStep : 1;  // one column after the other, or all at once
#pragma unroll
  for (int n = 0; n < kSteps; ++n) {
    if (n > 0 && n >= steps) continue;
#pragma unroll 1
    for (int column = 0; column < columns; ++column) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (to[n][c].token < 0 || (twice && column != 2 * t + c)) continue;
        float* at = sums + to[n][c].token * kSumStride<kRowTiles> + g;
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          at[16 * tile] = __fmaf_rn(to[n][c].weight, acc[tile][n][c], at[16 * tile]);
          at[16 * tile + 8] = __fmaf_rn(to[n][c].weight, acc[tile][n][c + 2], at[16 * tile + 8]);
        }
      }
      __syncwarp();
    }
  }
  turns.pass(work.tiles);
}

template <Format kFormat, Float16 kFloat, int kSpans, int kRowTiles, int kSteps, int kStages>
__device__ inline void down_sums_body(const DownTilesParams& p) {
  extern __shared__ uint4 shared_memory[];
  // kTurnBytes of barriers, f32 sums [T][kSumStride], the rings of the warps.
  float* sums = reinterpret_cast<float*>(shared_memory) + kTurnBytes / 4;
  const Int32 sum_floats = static_cast<Int32>(p.tokens) * kSumStride<kRowTiles>;  // a multiple of 8: rings stay aligned
  const StageLayout<kScaleOnSum<kFormat, kFloat>, kRowTiles, kSteps> layout{bytes_of_unit<kFormat>(p.down)};
  const UInt32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const UInt32 ring = shared_address(sums + sum_floats) + warp * kStages * layout.bytes();
  const Int32 slices = (p.down.row_tiles + kRowTiles - 1) / kRowTiles;

  DownSumsWork<kRowTiles> work;
  work.p = &p;
  work.warp = static_cast<Int32>(warp);
  work.tiles = p.counts[0];
  Turns turns{shared_address(shared_memory), 0, 0};
  if (threadIdx.x < kDownSumsWarps) barrier_init(turns.barriers + 8 * threadIdx.x, 32);
  for (work.slice = blockIdx.x; work.slice < slices; work.slice += gridDim.x) {
    for (Int32 i = threadIdx.x; i < sum_floats; i += kDownSumsThreads) sums[i] = 0.0f;
    __syncthreads();
    turns.tile = work.warp;
    run_stream<DownSumsWork<kRowTiles>, kFormat, kFloat, kSpans, kRowTiles, kSteps, kStages, true>(
        work, ring, lane, [&](const StreamItem& item, int steps, float(&acc)[kRowTiles][kSteps][4]) {
          add_in_turn<kFormat, kFloat, kRowTiles, kSteps>(work, turns, item, steps, acc, sums);
        });
    __syncthreads();
    const Int32 first = work.slice * kRowTiles * kUnitRows;
    for (Int32 i = threadIdx.x; i < p.tokens * kRowTiles * kUnitRows; i += kDownSumsThreads) {
      const Int32 token = i / (kRowTiles * kUnitRows), column = i % (kRowTiles * kUnitRows);
      if (first + column < p.hidden)
        p.out[static_cast<Int64>(token) * p.hidden + first + column] =
            narrow<kFloat>(sums[token * kSumStride<kRowTiles> + column]);
    }
    __syncthreads();
  }
}

template <Format kFormat, Float16 kFloat, int kSpans, int kRowTiles, int kSteps, int kStages>
__device__ inline void down_rows_body(const DownTilesParams& p) {
  extern __shared__ uint4 shared_memory[];  // the rings of the warps
  const StageLayout<kScaleOnSum<kFormat, kFloat>, kRowTiles, kSteps> layout{bytes_of_unit<kFormat>(p.down)};
  const UInt32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  DownRowsWork<kRowTiles> work;
  work.p = &p;
  work.warp = static_cast<Int32>(warp);
  work.first_tile = p.panel_begin / kUnitRows;
  work.slices = (p.panel_columns + kRowTiles * kUnitRows - 1) / (kRowTiles * kUnitRows);
  work.items = p.counts[0] * work.slices;
  run_stream<DownRowsWork<kRowTiles>, kFormat, kFloat, kSpans, kRowTiles, kSteps, kStages, true>(
      work, shared_address(shared_memory) + warp * kStages * layout.bytes(), lane,
      [&](const StreamItem& item, int, float(&acc)[kRowTiles][kSteps][4]) {
        const Int32 g = static_cast<Int32>(lane / 4);
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile)
          finish_values<kFormat, kFloat, kSteps>(p, item.tokens.expert, kUnitRows * (item.row_tile + tile) + g, acc[tile]);
#pragma unroll
        for (int n = 0; n < kSteps; ++n)
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const Int32 row = kTokenStep * n + 2 * static_cast<Int32>(lane % 4) + c % 2;
            if (row >= item.tokens.count) continue;
            float* to = p.rows + static_cast<Int64>(item.tokens.begin + row) * p.panel_columns;
#pragma unroll
            for (int tile = 0; tile < kRowTiles; ++tile) {
              const Int32 column = kUnitRows * (item.row_tile + tile) + g + c / 2 * 8;
              if (column < p.hidden && column < p.panel_begin + p.panel_columns)
                to[column - p.panel_begin] = acc[tile][n][c];
            }
          }
      });
}

}  // namespace fourfold::kernels
