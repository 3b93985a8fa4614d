// Arguments of the tensor-core expert kernels and the sizes of the packed weights they read, the same on host and
// device. Letters as in moe_params.h; a position is an index into the live routes sorted by expert, token, slot.
#pragma once

#include "params/activation.h"

namespace fourfold::kernels {

/// Warps of a block of the tile kernels, and threads.
constexpr Int32 kTileWarps = 8;
constexpr Int32 kTileThreads = 32 * kTileWarps;
/// down_sums: one block a multiprocessor, so more warps keep more copies under way; three a scheduler leave each thread
/// 168 registers.
constexpr Int32 kDownSumsWarps = 12;
constexpr Int32 kDownSumsThreads = 32 * kDownSumsWarps;
/// Shared memory of down_sums for the barriers by which its warps take turns, one of 8 bytes a warp.
constexpr Int32 kTurnBytes = 8 * kDownSumsWarps;
/// A unit is what one warp multiplies at once: 16 rows (the wide operand of mma.m16n8k16) by 64 reduction positions.
constexpr Int32 kUnitRows = 16;
constexpr Int32 kUnitDepth = 64;
/// Codes of a unit: 32 lanes of 16 bytes, 32 codes each.
constexpr Int32 kUnitCodeBytes = kUnitRows * kUnitDepth / 2;
/// Tokens that a tile grows by: the narrow operand of mma.m16n8k16.
constexpr Int32 kTokenStep = 8;
/// From a row of activations to the next in a ring stage: 64 positions of 2 bytes, and 32 bytes so that the rows which
/// a quarter (16-byte loads, 32 bytes apart) or half (8-byte loads) of a warp reads fall on different banks. See
/// row_pad_bytes.
constexpr Int32 kUnitRowBytes = 2 * kUnitDepth;
/// Fragments (16 rows x 8 tokens) that the warps of a block add up at a time, and the shared memory for it.
constexpr Int32 kSumFragments = 4;
constexpr Int32 kSumBytes = kTileWarps * kSumFragments * 128 * 4;
/// Threads of the routing block, routes of one of its rounds.
constexpr Int32 kRouteThreads = 1024;
/// Most experts of a plan: the routing block counts them in shared memory.
constexpr Int32 kMaxRouteExperts = 4096;

/// Extra bytes of an activation row in a stage: nvfp4 reads 16 bytes at 32 t + 16 h of row g, so two rows of a quarter
/// warp must differ by 16 modulo 32; the others read 8 bytes at 8 t of row g, so four rows must differ by 32.
constexpr Int32 row_pad_bytes(bool scale_on_sum) { return scale_on_sum ? 32 : 16; }

/// Bytes of a stage of a warp's ring: `row_tiles` units and the activations of 8 * `token_steps` tokens.
constexpr Int32 stage_bytes(Int32 unit_bytes, Int32 row_tiles, Int32 token_steps, bool scale_on_sum) {
  return row_tiles * unit_bytes + kTokenStep * token_steps * (kUnitRowBytes + row_pad_bytes(scale_on_sum));
}

/// Rows of consecutive tokens of one expert. 16 bytes, so that one load brings it.
struct TokenTile {
  Int32 expert;
  Int32 begin;  // first position
  Int32 count;  // 1 .. the plan's token tile
  Int32 reserved;
};

/// One projection of all experts in units: [E][row tiles][depth blocks] units. A unit is 512 bytes of codes in fragment
/// order, then its scales, then its zero points; docs/design_tensor_kernels.md has the order. Rows and positions that
/// pad are zero codes with zero scales. Base aligned to 16.
struct UnitMatrix {
  const UInt8* units;
  const float* global;  // f32 [E][parts]; nvfp4 only, else null
  const float* bias;    // f32 [E][N] or null, rows in logical order (gate rows, then up rows)
  Int64 expert_bytes;   // row_tiles * depth_blocks * unit_bytes
  Int64 bias_expert_floats;
  Int32 global_expert_floats;  // parts
  Int32 row_tiles;             // ceil(N / 16); gated gate_up: I / 8, 8 gate rows and the 8 up rows that belong to them
  Int32 depth_blocks;          // ceil(D / 64)
  Int32 unit_bytes;            // a multiple of 16
  Int32 scale_span;            // positions of one stored scale: 16, 32 or 64
  Int32 scale_type;            // int4: ScaleType
};

/// route_tiles: ids to sorted positions and token tiles, in one block.
struct RouteTilesParams {
  const void* topk_ids;     // i32 or i64 [T][K], any value
  const Int32* expert_map;  // i32 [id_count], -1 or a local expert; null: ids are local
  UInt32* invalid_ids;      // u32 [1] or null; the number of ids out of range is added
  Int32* sorted_routes;     // out: i32 [live routes], by expert, token, slot
  Int32* route_position;    // out: i32 [R], position of a route, -1 for one that adds zero
  TokenTile* tiles;         // out: [tile_count], by expert, then position
  Int32* counts;            // out: i32 [2]: token tiles, live routes
  Int64 routes;             // R, below 2^31
  Int64 id_count;           // ids -1 .. id_count - 1 are valid
  Int32 experts;            // E, at most kMaxRouteExperts
  Int32 token_tile;         // most tokens of a tile, a multiple of 8
  Int32 ids_are_64_bit;     // 0 or 1
  Int32 reserved;
};

/// gate_up_tiles: first projection and activation of every live route.
struct GateUpTilesParams {
  const UInt16* x;             // bf16 or f16 [T][H], base aligned to 16
  const float* topk_weights;   // f32 [T][K]; read only with router_weight_on_input
  const Int32* sorted_routes;  // i32 [live routes]
  const TokenTile* tiles;
  const Int32* counts;
  UInt16* activated;    // out: bf16 or f16 [live routes][I] by position, base aligned to 16
  UnitMatrix gate_up;   // D = H
  Int32 top_k;          // K
  Int32 hidden;         // H
  Int32 intermediate;   // I
  Int32 router_weight_on_input;
  Int32 has_limit;  // silu
  float limit;      // silu, swiglu_oai
  float alpha;      // swiglu_oai
  float beta;       // swiglu_oai
  Activation activation;
  Int32 reserved;
};

/// down_sums and down_rows: second projection.
struct DownTilesParams {
  const UInt16* activated;     // bf16 or f16 [live routes][I] by position
  const float* topk_weights;   // f32 [T][K]; not read with router_weight_on_input
  const Int32* sorted_routes;  // i32 [live routes]
  const TokenTile* tiles;
  const Int32* counts;
  UInt16* out;        // down_sums, out: bf16 or f16 [T][H], every element
  float* rows;        // down_rows, out: f32 [live routes][panel_columns] by position, not weighted, with bias
  UnitMatrix down;    // N = H, D = I
  Int64 tokens;       // T
  Int32 top_k;        // K
  Int32 hidden;       // H
  Int32 intermediate; // I
  Int32 router_weight_on_input;
  Int32 panel_begin;    // down_rows: first column, a multiple of 16
  Int32 panel_columns;  // a multiple of 16
};

/// combine_rows: weighted sum over a token's slots, by ascending position.
struct CombineRowsParams {
  const float* rows;            // f32 [live routes][panel_columns]
  const float* topk_weights;    // f32 [T][K]; not read with router_weight_on_input
  const Int32* route_position;  // i32 [R]
  UInt16* out;                  // out: bf16 or f16 [T][H], columns panel_begin .. of every token
  Int64 tokens;                 // T
  Int32 top_k;                  // K, at most 64
  Int32 hidden;                 // H
  Int32 panel_begin;
  Int32 panel_columns;
  Int32 router_weight_on_input;
  Int32 reserved;
};

static_assert(sizeof(TokenTile) == 16, "one 16-byte load");
static_assert(sizeof(UnitMatrix) == 5 * 8 + 6 * 4, "UnitMatrix has no padding");
static_assert(sizeof(RouteTilesParams) == 9 * 8 + 4 * 4, "RouteTilesParams has no padding");
static_assert(sizeof(GateUpTilesParams) == 6 * 8 + sizeof(UnitMatrix) + 10 * 4, "GateUpTilesParams has no padding");
static_assert(sizeof(DownTilesParams) == 7 * 8 + sizeof(UnitMatrix) + 8 + 6 * 4, "DownTilesParams has no padding");
static_assert(sizeof(CombineRowsParams) == 5 * 8 + 6 * 4, "CombineRowsParams has no padding");

}  // namespace fourfold::kernels
