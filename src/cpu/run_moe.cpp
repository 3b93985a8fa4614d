// The operation, as a specification in code: five named steps over packed experts. For token t, slot j, e = id[t, j]:
//   out[t] = sum_j w[t, j] * (down_e(act(gate_e(x[t]), up_e(x[t]))) + bias)
// Sums are fp32; a token's terms are added in (expert, slot) order, whoever computes them.
#include "cpu/run_moe.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

#include "core/check.h"
#include "cpu/activation.h"
#include "cpu/isa.h"
#include "cpu/repack.h"
#include "cpu/route.h"
#include "plan/cpu_plan.h"
#include "plan/plan_data.h"

namespace fourfold::cpu {
namespace {

/// Scratch of one thread, carved in the order of plan/cpu_tiles.h.
struct Scratch {
  float* sums;  // [kTokenTile][kCallColumns]
  float* carried;
  float* unpacked_scales;
  const std::uint8_t** rows;  // [kTokenTile]
  std::uint8_t** out_rows;    // [kTokenTile], the same bytes serve as rows of the output tile
  float* factors;             // [kTokenTile]
  std::uint8_t* unpacked_codes;

  explicit Scratch(std::byte* base) {
    const auto take = [&base](std::int64_t bytes) {
      std::byte* const begin = base;
      base += bytes;
      return begin;
    };
    sums = reinterpret_cast<float*>(take(kSumsBytes));
    carried = reinterpret_cast<float*>(take(kCarriedBytes));
    unpacked_scales = reinterpret_cast<float*>(take(kUnpackedScaleBytes));
    rows = reinterpret_cast<const std::uint8_t**>(take(std::int64_t{kTokenTile} * 8));
    out_rows = reinterpret_cast<std::uint8_t**>(take(std::int64_t{kTokenTile} * 8));
    factors = reinterpret_cast<float*>(take(std::int64_t{kTokenTile} * 8));
    unpacked_codes = reinterpret_cast<std::uint8_t*>(base);
  }
};

/// A call while it runs: what the steps share. Read-only after the first step, except for the planes they fill.
struct Run {
  const BoundMoe& bound;
  const MicroKernels& kernels;
  const PlanData& plan;
  const Caps& caps;
  const PackedCpuExperts& weights;
  bool bf16_dot;
  std::int64_t value_bytes;  // of the compute type
  std::int64_t x_row_bytes;
  std::int64_t activated_row_bytes;
  std::int64_t column_tile;
  std::int64_t gate_up_tiles;
  int direct_tokens;
  RouteTable table;
  RouteResult routed;
  const std::uint8_t* x;    // [tokens][x_row_bytes] compute type
  std::uint8_t* activated;  // [routes][activated_row_bytes] compute type

  Run(const BoundMoe& bound_in, const MicroKernels& kernels_in)
      : bound(bound_in),
        kernels(kernels_in),
        plan(*bound.plan),
        caps(plan.caps),
        weights(static_cast<const PackedCpuExperts&>(*bound.weights)),
        bf16_dot(cpu_bf16_dot(caps, plan.device)),
        value_bytes(bf16_dot ? 2 : 4),
        x_row_bytes(round_up(caps.hidden, kStepColumns) * value_bytes),
        activated_row_bytes(round_up(caps.intermediate, kStepColumns) * value_bytes),
        column_tile(bound.band->column_tile),
        gate_up_tiles(
            ceil_div(caps.intermediate, kPanelRows * (caps.activation.gated() ? kCallPanels / 2 : kCallPanels))),
        direct_tokens(cpu_direct_tokens(plan.device)) {
    table.offsets = segment<std::int64_t>(plan.cpu.expert_offsets);
    table.active = segment<std::int32_t>(plan.cpu.active_experts);
    table.routes = segment<std::int64_t>(plan.cpu.sorted_routes);
    x = plan.cpu.x_rows < 0 ? static_cast<const std::uint8_t*>(bound.x) : segment<std::uint8_t>(plan.cpu.x_rows);
    activated = segment<std::uint8_t>(plan.cpu.activated);
  }

  template <class T>
  T* segment(int index) const {
    return reinterpret_cast<T*>(bound.workspace + plan.segments[static_cast<std::size_t>(index)].offset_bytes);
  }
  /// The part of a per-thread segment that belongs to `thread`.
  std::byte* thread_part(int index, int thread) const {
    const auto bytes = static_cast<std::int64_t>(plan.segments[static_cast<std::size_t>(index)].bytes);
    return segment<std::byte>(index) + bytes / plan.device.threads * thread;
  }

  DotCall dot_call(const PackedMatrix& matrix, const Scratch& scratch, int tokens) const {
    DotCall call{};
    call.steps = matrix.layout.steps;
    call.group_steps = matrix.layout.group_steps;
    call.rows = scratch.rows;
    call.tokens = tokens;
    call.sums = scratch.sums;
    call.carried = scratch.carried;
    call.unpacked_scales = scratch.unpacked_scales;
    call.unpacked_codes = scratch.unpacked_codes;
    return call;
  }
  void multiply(PanelFormat format, const DotCall& call) const {
    const bool direct = call.tokens <= direct_tokens || bound.band->token_tile <= direct_tokens;
    (direct ? kernels.direct : kernels.blocked)[static_cast<int>(format)](call);
  }
};

/// Step 1, one thread: routes by expert, token, slot; ids out of range are counted once.
void route(Run& run) {
  RouteCall call;
  call.ids = run.bound.topk_ids;
  call.ids_are_64_bit = run.bound.ids_are_64_bit;
  call.tokens = run.bound.tokens;
  call.top_k = run.caps.top_k;
  call.experts = run.caps.experts;
  call.id_count = run.caps.id_count();
  call.expert_map = run.bound.expert_map;
  run.routed = route_tokens(call, run.table);
  if (run.bound.invalid_ids && run.routed.invalid_ids > 0)
    std::atomic_ref<std::uint32_t>(*run.bound.invalid_ids)
        .fetch_add(static_cast<std::uint32_t>(run.routed.invalid_ids), std::memory_order_relaxed);
}

/// Step 2: x in compute type, rows zero-padded to whole steps. Nothing to do when x is that already.
void gather(const Run& run, int thread, int threads) {
  if (run.plan.cpu.x_rows < 0) return;
  const std::int64_t first = run.bound.tokens * thread / threads, last = run.bound.tokens * (thread + 1) / threads;
  const std::int64_t in_row_bytes = run.caps.hidden * dtype_bits(run.caps.activation_dtype) / 8;
  for (std::int64_t token = first; token < last; ++token)
    gather_row(static_cast<const std::uint8_t*>(run.bound.x) + token * in_row_bytes, run.caps.activation_dtype,
               run.caps.hidden, round_up(run.caps.hidden, kStepColumns), run.bf16_dot,
               run.segment<std::uint8_t>(run.plan.cpu.x_rows) + token * run.x_row_bytes);
}

/// gate_up of `tokens` routes from `first_route` for one tile of panels, and the activation.
void gate_up_tile(const Run& run, const PackedExpert& expert, std::int64_t first_route, int tokens, std::int64_t tile,
                  const Scratch& scratch) {
  const PackedMatrix& matrix = expert.gate_up;
  const bool gated = matrix.layout.parts == 2;
  const std::int64_t part_columns = matrix.layout.part_panels() * kPanelRows, first_column = tile * part_columns;
  for (int t = 0; t < tokens; ++t) {
    const std::int64_t source = run.table.routes[first_route + t];
    scratch.rows[t] = run.x + source / run.caps.top_k * run.x_row_bytes;
    scratch.factors[t] = run.bound.topk_weights[source];
    scratch.out_rows[t] =
        run.activated + (first_route + t) * run.activated_row_bytes + first_column * run.value_bytes;
  }
  DotCall dot = run.dot_call(matrix, scratch, tokens);
  dot.tile = matrix.tile(tile);
  dot.panel_count = kCallPanels;
  run.multiply(expert.format, dot);

  ActivateCall call{};
  describe_activation(run.caps.activation, run.caps.activation_dtype, call);
  const float* const bias = matrix.bias ? matrix.bias + tile * kCallColumns : nullptr;
  const std::int64_t up = gated ? part_columns : 0;
  call.gate_sums = gated ? scratch.sums : nullptr;
  call.up_sums = scratch.sums + up;
  call.tokens = tokens;
  call.columns = static_cast<int>(std::min(part_columns, run.caps.intermediate - first_column));
  call.panel_count = static_cast<int>(ceil_div(call.columns, kPanelRows));
  call.gate_global = matrix.globals[0];
  call.up_global = matrix.globals[gated ? 1 : 0];
  call.gate_bias = gated ? bias : nullptr;
  call.up_bias = bias ? bias + up : nullptr;
  call.input_factors = run.caps.router_weight_on_input ? scratch.factors : nullptr;
  call.out_rows = scratch.out_rows;
  run.kernels.activate(call);
}

/// Step 3, work item: a range of tiles of one expert, for all of the expert's tokens.
void gate_up(const Run& run, std::int64_t expert_index, std::int64_t first_tile, std::int64_t last_tile,
             const Scratch& scratch) {
  const PackedExpert& expert = run.weights.expert(expert_index);
  const std::int64_t first_route = run.table.offsets[expert_index], last_route = run.table.offsets[expert_index + 1];
  for (std::int64_t tile = first_tile; tile < last_tile; ++tile)
    for (std::int64_t route = first_route; route < last_route; route += kTokenTile)
      gate_up_tile(run, expert, route, static_cast<int>(std::min<std::int64_t>(kTokenTile, last_route - route)), tile,
                   scratch);
}

/// Step 4, work item: panels of output columns, for all experts in ascending order, into an fp32 tile
/// [tokens][column_tile]. Nobody else touches these columns, so nothing is combined afterwards.
void down(const Run& run, std::int64_t first_panel, int panel_count, float* sums_tile, const Scratch& scratch) {
  std::fill_n(sums_tile, run.bound.tokens * run.column_tile, 0.0f);
  for (std::int64_t a = 0; a < run.routed.active_experts; ++a) {
    const PackedExpert& expert = run.weights.expert(run.table.active[a]);
    const std::int64_t last_route = run.table.offsets[run.table.active[a] + 1];
    for (std::int64_t tile = run.table.offsets[run.table.active[a]]; tile < last_route; tile += kTokenTile) {
      const int tokens = static_cast<int>(std::min<std::int64_t>(kTokenTile, last_route - tile));
      float** const targets = reinterpret_cast<float**>(scratch.out_rows);
      for (int t = 0; t < tokens; ++t) {
        const std::int64_t source = run.table.routes[tile + t];
        scratch.rows[t] = run.activated + (tile + t) * run.activated_row_bytes;
        scratch.factors[t] = run.caps.router_weight_on_input ? 1.0f : run.bound.topk_weights[source];
        targets[t] = sums_tile + source / run.caps.top_k * run.column_tile;
      }
      DotCall dot = run.dot_call(expert.down, scratch, tokens);
      dot.tile = expert.down.tile(first_panel / kCallPanels, static_cast<int>(first_panel % kCallPanels));
      dot.panel_count = panel_count;
      if (a + 1 < run.routed.active_experts)
        dot.next = run.weights.expert(run.table.active[a + 1]).down.tile(first_panel / kCallPanels).codes;
      run.multiply(expert.format, dot);
      const float* const bias = expert.down.bias ? expert.down.bias + first_panel * kPanelRows : nullptr;
      run.kernels.accumulate(
          {scratch.sums, tokens, panel_count, expert.down.globals[0], bias, scratch.factors, targets});
    }
  }
}

/// Step 5, same work item: one rounding, every row written; a row without a live expert is zeros.
void store(const Run& run, std::int64_t first_panel, int panel_count, const float* sums_tile) {
  const std::int64_t first_column = first_panel * kPanelRows;
  const std::int64_t columns = std::min<std::int64_t>(panel_count * kPanelRows, run.caps.hidden - first_column);
  const std::int64_t value_bytes = dtype_bits(run.caps.activation_dtype) / 8;
  for (std::int64_t token = 0; token < run.bound.tokens; ++token)
    store_row(sums_tile + token * run.column_tile, columns, run.caps.activation_dtype,
              static_cast<std::byte*>(run.bound.out) + (token * run.caps.hidden + first_column) * value_bytes);
}

/// Work items of steps 3 and 4, taken by threads from two counters.
struct Work {
  std::int64_t tiles = 0, tiles_per_item = 0, items_per_expert = 0, gate_up_items = 0, down_items = 0;
  alignas(64) std::atomic<std::int64_t> next_gate_up{0};
  alignas(64) std::atomic<std::int64_t> next_down{0};

  /// After routing. Items are long runs of tiles (memory streams), yet enough of them to balance the threads.
  void divide(const Run& run, int threads) {
    tiles = run.gate_up_tiles;
    constexpr std::int64_t kItemsPerThread = 12, kMostTiles = 8;
    const std::int64_t wanted = tiles * run.routed.active_experts / (kItemsPerThread * threads);
    tiles_per_item = std::clamp<std::int64_t>(wanted, 1, kMostTiles);
    items_per_expert = ceil_div(tiles, tiles_per_item);
    gate_up_items = items_per_expert * run.routed.active_experts;
    down_items = ceil_div(run.caps.hidden, run.column_tile);
  }
};

/// What one thread does. `barrier` returns when every thread of the team has called it.
template <class Barrier>
void run_thread(Run& run, Work& work, int thread, int threads, const Barrier& barrier) {
  const IeeeArithmetic ieee;
  const Scratch scratch(run.thread_part(run.plan.cpu.thread_scratch, thread));
  if (thread == 0) {
    route(run);
    work.divide(run, threads);
  }
  gather(run, thread, threads);
  barrier();
  for (std::int64_t item; (item = work.next_gate_up.fetch_add(1, std::memory_order_relaxed)) < work.gate_up_items;) {
    const std::int64_t first = item % work.items_per_expert * work.tiles_per_item;
    const std::int64_t last = std::min(first + work.tiles_per_item, work.tiles);
    gate_up(run, run.table.active[item / work.items_per_expert], first, last, scratch);
  }
  barrier();
  float* const sums_tile = reinterpret_cast<float*>(run.thread_part(run.plan.cpu.output_sums, thread));
  const std::int64_t tile_panels = run.column_tile / kPanelRows, panels = ceil_div(run.caps.hidden, kPanelRows);
  for (std::int64_t item; (item = work.next_down.fetch_add(1, std::memory_order_relaxed)) < work.down_items;) {
    const std::int64_t first = item * tile_panels;
    const int count = static_cast<int>(std::min(tile_panels, panels - first));
    down(run, first, count, sums_tile, scratch);
    store(run, first, count, sums_tile);
  }
}

}  // namespace

void run_moe(const BoundMoe& bound, const MicroKernels& kernels) {
  Run run(bound, kernels);
  Work work;
  const int wanted = cpu_threads(run.plan, bound.tokens);
  if (wanted == 1) {
    run_thread(run, work, 0, 1, [] {});
    return;
  }
#pragma omp parallel num_threads(wanted)
  run_thread(run, work, omp_get_thread_num(), omp_get_num_threads(), [] {
#pragma omp barrier
  });
}

}  // namespace fourfold::cpu
