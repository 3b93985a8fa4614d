// What a Plan holds. Immutable once built; backends read it, nobody writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fourfold/plan.h"
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

/// Segment indices of a CUDA plan, in the order they are added; -1 for other devices.
struct CudaSegments {
  int route_expert = -1;    // i32 [max_tokens * top_k]  local expert of a route (token * top_k + slot), -1: adds zero
  int expert_offsets = -1;  // i32 [experts + 1]         live routes before each expert; the last entry counts all
  int sorted_routes = -1;   // i32 [max_tokens * top_k]  live routes by expert, token, slot
  int activated = -1;       // [max_tokens * top_k, intermediate] activated intermediate in activation dtype, by route
};

struct PlanData {
  Caps caps;
  Device device;
  std::vector<Band> bands;  // ascending, gapless from 1 to max_tokens; empty when max_tokens == 0
  std::vector<std::string> steps;
  std::vector<Segment> segments;
  std::vector<KernelSpec> kernel_specs;  // CUDA: every instance the bands name, once; empty on a CPU
  std::vector<Declined> declined;
  std::vector<std::string> notes;
  std::uint64_t workspace_bytes = 0;
  std::uint64_t weight_bytes = 0;
  CpuSegments cpu;
  CudaSegments cuda;
};

}  // namespace fourfold
