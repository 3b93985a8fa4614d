// What a Plan holds. Immutable once built; backends read it, nobody writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fourfold/plan.h"
#include "plan/cuda_launch.h"
#include "plan/cuda_tile_choice.h"
#include "plan/kernel_spec.h"

namespace fourfold {

/// Segment indices of a CPU plan, in the order they are added; -1 when the plan has no such segment.
struct CpuSegments {
  int expert_offsets = -1;  // i64 [experts + 1]           routes before each expert
  int active_experts = -1;  // i32 [min(experts, routes)]  experts with a live route, ascending
  int sorted_routes = -1;   // i64 [max_tokens * top_k]    route ids (token * top_k + slot) by expert, token, slot
  int x_rows = -1;          // [max_tokens, hidden_padded] activations in compute type, zero-padded; -1: used in place
  int activated = -1;       // [routes, intermediate_padded] activated intermediate in compute type, zero-padded
  int output_sums = -1;     // f32 [threads][max_tokens, column_tile] sums of the output columns in work
  int thread_scratch = -1;  // [threads] unpacked panels, partial sums, scales, row lists (plan/cpu_tiles.h)
};

/// Kernels of a CUDA plan: plain twins that explain and check, or tensor cores.
enum class CudaFamily : std::uint8_t { naive, tiles };

/// Segment indices of a CUDA plan, in the order they are added; -1 when the plan has no such segment. A position is an
/// index into the live routes sorted by expert, token, slot.
struct CudaSegments {
  int sorted_routes = -1;   // i32 [max_tokens * top_k]  live routes (token * top_k + slot) by position
  int activated = -1;       // [max_tokens * top_k, intermediate] activation dtype; naive: by route, tiles: by position
  int route_expert = -1;    // naive: i32 [max_tokens * top_k]  local expert of a route, -1: adds zero
  int expert_offsets = -1;  // naive: i32 [experts + 1]         live routes before each expert; the last counts all
  int route_position = -1;  // tiles: i32 [max_tokens * top_k]  position of a route, -1: adds zero
  int tiles = -1;           // tiles: 16 bytes [token tiles]    {expert, first position, count, 0}
  int counts = -1;          // tiles: i32 [2]                   token tiles, live routes
  int rows = -1;            // tiles: f32 [max_tokens * top_k, panel columns] products of one panel by position
};

struct PlanData {
  Caps caps;
  Device device;
  std::vector<Band> bands;  // ascending, gapless from 1 to max_tokens; empty when max_tokens == 0
  std::vector<std::string> steps;
  std::vector<Segment> segments;
  std::vector<KernelSpec> kernel_specs;  // CUDA: every instance the launches name, once; empty on a CPU
  std::vector<Declined> declined;
  std::vector<std::string> notes;
  std::uint64_t workspace_bytes = 0;
  std::uint64_t weight_bytes = 0;
  CpuSegments cpu;
  CudaFamily cuda_family = CudaFamily::tiles;
  bool sizes_only = false;           // only the workspace was asked for: kernels need no names
  CudaTileChoice forced_tiles;       // CUDA: shapes that a measurement wants; usually none
  std::vector<CudaBand> cuda_bands;  // CUDA: the launches of each of `bands`
  CudaSegments cuda;
};

}  // namespace fourfold
