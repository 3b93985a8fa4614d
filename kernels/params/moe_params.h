// Arguments of the expert kernels, one plain struct per kernel, the same bytes on host and device.
// Letters in shapes: T live tokens, K top_k, R = T * K routes (route = token * K + slot), E experts, H hidden,
// I intermediate, N rows of a matrix, D its reduction length, G = ceil(D / group_size) groups of a row.
#pragma once

#include "params/integers.h"

namespace fourfold::kernels {

/// Threads of a block of every naive kernel (a plan's KernelSpec::block_threads).
constexpr Int32 kNaiveThreads = 128;
/// Blocks that a multiprocessor has room for at once: 65536 / (8 * 128) = 64 registers a thread, which is the plan's
/// KernelSpec::max_registers. Named because the compiler, left alone, spills to reach 32.
constexpr Int32 kNaiveBlocks = 8;

/// Element type of int4 scales. nvfp4 (E4M3) and mxfp4 (E8M0) scales are bytes and ignore it.
enum class ScaleType : Int32 { bf16 = 0, f16 = 1, f32 = 2 };

/// One projection of all experts. Codes: two a byte, even position in the low nibble. Read-only.
/// Bases are aligned to 4 bytes and code strides are multiples of 4, so that 8 codes are one word.
struct MatrixParams {
  const UInt8* codes;        // u8 [E][N][D / 2]
  const void* scales;        // [E][N][G]: nvfp4 E4M3, mxfp4 E8M0, int4 scale_type
  const UInt8* zeros;        // u8 [E][N][G], 0 .. 15; int4 with zero points only, else null
  const float* global;       // f32 [E][parts]; nvfp4 only, else null. parts: gate and up, or 1
  const float* bias;         // f32 [E][N] or null
  Int64 codes_expert_bytes;  // strides: from an expert, or a row, to the next
  Int64 codes_row_bytes;
  Int64 scales_expert_bytes;
  Int64 scales_row_bytes;
  Int64 zeros_expert_bytes;
  Int64 zeros_row_bytes;
  Int64 global_expert_floats;
  Int64 bias_expert_floats;
  Int32 reduction;       // D, a multiple of 8
  Int32 group_size;      // positions of a group: a multiple of 8; D when the whole row is one
  ScaleType scale_type;  // int4
  Int32 reserved;
};

/// route_resolve: ids to local experts.
struct RouteResolveParams {
  const void* topk_ids;     // i32 or i64 [T][K], any value
  const Int32* expert_map;  // i32 [id_count], -1 or a local expert; null: ids are local
  UInt32* invalid_ids;      // u32 [1] or null; the number of ids out of range is added
  Int32* route_expert;      // out: i32 [R], local expert, or -1 for a route that adds zero
  Int64 routes;             // R
  Int64 id_count;           // ids -1 .. id_count - 1 are valid
  Int32 experts;            // E, at most 4096
  Int32 ids_are_64_bit;     // 0 or 1
};

/// route_sort: routes in order of expert, then token, then slot.
struct RouteSortParams {
  const Int32* route_expert;  // i32 [R], from route_resolve
  Int32* expert_offsets;      // out: i32 [E + 1], routes of all smaller experts; the last entry counts live routes
  Int32* sorted_routes;       // out: i32 [live routes]; the rest is not written
  Int64 routes;               // R, below 2^31
  Int32 experts;              // E
  Int32 reserved;
};

/// gate_up_naive: first projection and activation of every live route.
struct GateUpParams {
  const UInt16* x;              // bf16 or f16 [T][H]
  const float* topk_weights;    // f32 [T][K]; read only with router_weight_on_input
  const Int32* route_expert;    // i32 [R]
  const Int32* expert_offsets;  // i32 [E + 1]
  const Int32* sorted_routes;   // i32 [live routes]
  UInt16* activated;            // out: bf16 or f16 [R][I]; rows of live routes only
  MatrixParams gate_up;         // N = 2 I (gate rows, then up rows), or I without a gate; D = H
  Int32 experts;                // E
  Int32 top_k;                  // K
  Int32 hidden;                 // H
  Int32 intermediate;           // I
  Int32 router_weight_on_input;
  Int32 has_limit;  // silu
  float limit;      // silu, swiglu_oai
  float alpha;      // swiglu_oai
  float beta;       // swiglu_oai
  Int32 reserved;
};

/// down_naive: second projection, weighted sum over the slots of a token, store.
struct DownParams {
  const UInt16* activated;    // bf16 or f16 [R][I]
  const float* topk_weights;  // f32 [T][K]; not read with router_weight_on_input
  const Int32* route_expert;  // i32 [R]
  UInt16* out;                // out: bf16 or f16 [T][H], every element
  MatrixParams down;          // N = H, D = I
  Int64 tokens;               // T
  Int32 top_k;                // K
  Int32 hidden;               // H
  Int32 intermediate;         // I
  Int32 router_weight_on_input;
};

// A size that is the sum of the members' leaves no room for padding: every offset follows from the order above, on both
// sides. (NVRTC has no offsetof.)
static_assert(sizeof(MatrixParams) == 5 * 8 + 8 * 8 + 4 * 4, "MatrixParams has no padding");
static_assert(sizeof(RouteResolveParams) == 4 * 8 + 2 * 8 + 2 * 4, "RouteResolveParams has no padding");
static_assert(sizeof(RouteSortParams) == 3 * 8 + 8 + 2 * 4, "RouteSortParams has no padding");
static_assert(sizeof(GateUpParams) == 6 * 8 + sizeof(MatrixParams) + 10 * 4, "GateUpParams has no padding");
static_assert(sizeof(DownParams) == 4 * 8 + sizeof(MatrixParams) + 8 + 4 * 4, "DownParams has no padding");

}  // namespace fourfold::kernels
