// Bands, launches and ledger of the tensor-core kernels.
#include "plan/cuda_tile_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>

#include "core/check.h"
#include "kernels/params/tile_params.h"
#include "plan/arena.h"
#include "plan/cuda_tile_table.h"
#include "plan/cuda_unit_layout.h"

namespace fourfold {
namespace {

enum TileStep : int { kRoute, kGateUp, kDown, kCombine };

constexpr std::int64_t kReservedSharedBytes = 1024;  // of a block, by the system (CUDA C++ Programming Guide)
constexpr int kRegistersOfMultiprocessor = 65536;
constexpr int kMaxThreadRegisters = 255;
constexpr std::int64_t kRouteSharedBytes = 4 * (kernels::kMaxRouteExperts + kernels::kRouteThreads / 32);
constexpr std::int64_t kCombineSharedBytes = 64 * 4 * 3;  // position, order and weight of a token's slots
constexpr std::int64_t kCombineBlocksOfMultiprocessor = 4;
constexpr std::int64_t kMaxItems = INT32_MAX;  // of a launch: Int32 in gate_up_body.cuh and down_body.cuh

static_assert(kCudaUnitRows == kernels::kUnitRows && kCudaUnitDepth == kernels::kUnitDepth &&
              kCudaUnitCodeBytes == kernels::kUnitCodeBytes);

/// The largest unit of a projection: fp32 scales where int4 leaves their dtype open until weights are packed.
std::int64_t largest_unit_bytes(const Caps& caps) {
  return cuda_unit_layout(caps, {4, 4}).gate_up.unit_bytes;
}

/// kScaleOnSum of kernels/device/unpack.cuh.
bool scale_on_sum(const Caps& caps) {
  const bool bf16 = caps.activation_dtype == DType::bf16;
  return caps.format.format == WeightFormat::int4 || (caps.format.format == WeightFormat::mxfp4 && !bf16);
}

/// Of all warps of a block.
std::int64_t ring_bytes(const Caps& caps, const CudaTileShape& shape, int warps = kernels::kTileWarps) {
  return std::int64_t{warps} * shape.stages *
         kernels::stage_bytes(static_cast<int>(largest_unit_bytes(caps)), shape.row_tiles, shape.token_steps,
                              scale_on_sum(caps));
}

/// Sums of a slice of columns for one token; the pad keeps neighbouring tokens on different banks (down_body.cuh).
std::int64_t sum_bytes_per_token(const CudaTileShape& shape) {
  return (kCudaUnitRows * shape.row_tiles + 8) * 4;
}

/// Barriers, sums of a slice of columns for `tokens` tokens, and the rings.
std::int64_t sums_shared_bytes(const Caps& caps, const CudaTileShape& shape, std::int64_t tokens) {
  return kernels::kTurnBytes + ring_bytes(caps, shape, kernels::kDownSumsWarps) + tokens * sum_bytes_per_token(shape);
}

/// Blocks of kTileThreads that the registers which the launch bounds promise leave room for: two for small items.
int blocks_by_registers(const CudaTileShape& shape) { return shape.row_tiles * shape.token_steps <= 4 ? 2 : 1; }

/// Blocks of kTileThreads that a multiprocessor holds at once.
std::int64_t blocks_per_multiprocessor(const Device& device, const CudaTileShape& shape, std::int64_t shared_bytes) {
  const std::int64_t by_registers = blocks_by_registers(shape);
  const std::int64_t by_memory =
      (device.shared_memory_bytes + kReservedSharedBytes) / (shared_bytes + kReservedSharedBytes);
  return std::max<std::int64_t>(1, std::min(by_registers, by_memory));
}

/// Everything that one band needs, chosen.
struct BandChoice {
  std::int64_t min_tokens = 1, max_tokens = 1;
  CudaTileShape gate_up, down;
  bool sums = true;  ///< the second projection: sums in shared memory, or panels of rows
};

std::optional<CudaTileShape> gate_up_shape(const Caps& caps, const Device& device, int token_steps) {
  for (const CudaTileShape& shape : kGateUpShapes)
    if (shape.token_steps == token_steps && kernels::kSumBytes + ring_bytes(caps, shape) <= device.shared_memory_bytes)
      return shape;
  return std::nullopt;
}

/// Whether down_sums keeps its registers: mxfp4 in fp16 holds scales and partial sums beside the sums, and three row
/// tiles of two token steps spill (sm_100a).
bool has_sums_instance(const Caps& caps, const CudaTileShape& shape) {
  const bool tight = caps.format.format == WeightFormat::mxfp4 && scale_on_sum(caps);
  return !tight || shape.row_tiles * shape.token_steps <= 4;
}

/// Slices of output columns so wide that every multiprocessor owns at most one, as far as there are instances.
std::optional<CudaTileShape> sums_shape(const Caps& caps, const Device& device, int token_steps, std::int64_t tokens) {
  const std::int64_t wanted = ceil_div(ceil_div(caps.hidden, kCudaUnitRows), device.multiprocessors);
  for (const CudaTileShape& shape : kDownSumsShapes)
    if (shape.token_steps == token_steps && shape.row_tiles <= wanted && has_sums_instance(caps, shape) &&
        sums_shared_bytes(caps, shape, tokens) <= device.shared_memory_bytes)
      return shape;
  return std::nullopt;
}

std::optional<CudaTileShape> rows_shape(const Caps& caps, const Device& device, int token_steps) {
  for (const CudaTileShape& shape : kDownRowsShapes)
    if (shape.token_steps == token_steps && ring_bytes(caps, shape) <= device.shared_memory_bytes) return shape;
  return std::nullopt;
}

/// The tiles that `tokens` tokens should have, in steps, and the last token count that should have the same.
struct WantedSteps {
  int steps = 1;
  std::int64_t last = 1;
};

WantedSteps wanted_steps(const Caps& caps, std::int64_t tokens) {
  const auto last = [&](std::int64_t mean) {
    return std::min(caps.max_tokens, std::max<std::int64_t>(1, mean * caps.experts / caps.top_k));
  };
  if (tokens <= last(kMeanTokensOfOneStep)) return {1, last(kMeanTokensOfOneStep)};
  const std::int64_t two = std::max(last(kMeanTokensOfTwoSteps), std::min(kMaxSumsTokens, caps.max_tokens));
  if (tokens <= two) return {2, two};  // sums in shared memory have no instance of four steps
  return {4, caps.max_tokens};
}

/// The band that begins at `first`; smaller tiles than wanted where shared memory is too small for them.
std::optional<BandChoice> choose_band(const Caps& caps, const Device& device, std::int64_t first) {
  const WantedSteps wanted = wanted_steps(caps, first);
  for (int steps = wanted.steps; steps >= 1; steps /= 2) {
    const auto gate_up = gate_up_shape(caps, device, steps);
    if (!gate_up) continue;
    BandChoice band{first, wanted.last, *gate_up, {}, true};
    if (first <= kMaxSumsTokens) {
      band.max_tokens = std::min(wanted.last, kMaxSumsTokens);
      if (const auto sums = sums_shape(caps, device, steps, band.max_tokens)) {
        band.down = *sums;
        return band;
      }
      band.max_tokens = wanted.last;
    }
    if (const auto rows = rows_shape(caps, device, steps)) {
      band.down = *rows;
      band.sums = false;
      return band;
    }
  }
  return std::nullopt;
}

std::vector<BandChoice> choose_bands(const Caps& caps, const Device& device) {
  std::vector<BandChoice> bands;
  for (std::int64_t first = 1; first <= caps.max_tokens; first = bands.back().max_tokens + 1) {
    const auto band = choose_band(caps, device, first);
    check(band.has_value(), ErrorCode::internal, "no tile kernels for {} tokens; cuda_tiles_refusal should say so",
          first);
    bands.push_back(*band);
  }
  return bands;
}

/// Kernel instances of a plan, each once.
class Instances {
 public:
  /// With `unnamed`, nothing is listed and every index is 0: for who asks for sizes only.
  Instances(const Caps& caps, std::vector<KernelSpec>& specs, bool unnamed = false)
      : caps_(caps), specs_(specs), unnamed_(unnamed) {}
  int add(const char* source, std::vector<std::pair<std::string, std::string>> defines, int threads,
          std::int64_t static_bytes, std::int64_t dynamic_bytes, int blocks) {
    KernelSpec spec;
    spec.source = source;
    spec.defines = std::move(defines);
    std::sort(spec.defines.begin(), spec.defines.end());
    spec.block_threads = threads;
    spec.max_registers = std::min(kMaxThreadRegisters, kRegistersOfMultiprocessor / (threads * blocks) / 8 * 8);
    spec.shared_bytes = static_bytes + dynamic_bytes;
    for (std::size_t i = 0; i < specs_.size(); ++i)
      if (specs_[i].source == spec.source && specs_[i].defines == spec.defines) {
        specs_[i].shared_bytes = std::max(specs_[i].shared_bytes, spec.shared_bytes);
        return static_cast<int>(i);
      }
    specs_.push_back(std::move(spec));
    return static_cast<int>(specs_.size() - 1);
  }
  int add_tiles(const char* source, const CudaTileShape& shape, std::int64_t dynamic_bytes) {
    return add_shape(source, shape, kernels::kTileThreads, dynamic_bytes, blocks_by_registers(shape));
  }
  int add_sums(const CudaTileShape& shape, std::int64_t dynamic_bytes) {
    return add_shape("moe/down_sums.cu", shape, kernels::kDownSumsThreads, dynamic_bytes, 1);
  }
  int add_route() {
    if (unnamed_) return 0;
    return add("moe/route_tiles.cu", {}, kernels::kRouteThreads, kRouteSharedBytes, 0, 1);
  }
  int add_combine() {
    if (unnamed_) return 0;
    return add("moe/combine_rows.cu", {{"DTYPE", std::string(cuda_dtype_macro(caps_.activation_dtype))}},
               kernels::kTileThreads, kCombineSharedBytes, 0, 1);
  }

 private:
  int add_shape(const char* source, const CudaTileShape& shape, int threads, std::int64_t dynamic_bytes, int blocks) {
    if (unnamed_) return 0;
    return add(source,
               {{"FORMAT", caps_.format.format == WeightFormat::int4 ? "int4" : cuda_format_macro(caps_.format)},
                {"DTYPE", std::string(cuda_dtype_macro(caps_.activation_dtype))},
                {"SPANS", std::to_string(cuda_unit_layout(caps_).gate_up.spans())},
                {"ROW_TILES", std::to_string(shape.row_tiles)},
                {"TOKEN_STEPS", std::to_string(shape.token_steps)},
                {"STAGES", std::to_string(shape.stages)}},
               threads, 0, dynamic_bytes, blocks);
  }

  const Caps& caps_;
  std::vector<KernelSpec>& specs_;
  bool unnamed_ = false;
};

void add_down_launches(const PlanData& data, const BandChoice& choice, Instances& instances, CudaBand& band) {
  const Caps& caps = data.caps;
  const Device& device = data.device;
  CudaLaunch down;
  down.token_tile = 8 * choice.down.token_steps;
  down.row_tiles = choice.down.row_tiles;
  if (choice.sums) {
    down.kernel = CudaKernel::down_sums;
    down.dynamic_bytes = sums_shared_bytes(caps, choice.down, 0);
    down.dynamic_bytes_per_token = sum_bytes_per_token(choice.down);
    down.max_blocks = device.multiprocessors;
    down.spec = instances.add_sums(choice.down, down.shared_bytes(choice.max_tokens));
    band.launches.push_back(down);
    return;
  }
  down.kernel = CudaKernel::down_rows;
  down.dynamic_bytes = ring_bytes(caps, choice.down);
  down.max_blocks = device.multiprocessors * blocks_per_multiprocessor(device, choice.down, down.dynamic_bytes);
  down.spec = instances.add_tiles("moe/down_rows.cu", choice.down, down.dynamic_bytes);
  CudaLaunch combine;
  combine.kernel = CudaKernel::combine_rows;
  combine.max_blocks = device.multiprocessors * kCombineBlocksOfMultiprocessor;
  combine.spec = instances.add_combine();
  const std::int64_t panel = std::min(kPanelColumns, round_up(caps.hidden, kCudaUnitRows));
  for (std::int64_t begin = 0; begin < caps.hidden; begin += panel) {
    down.panel_begin = combine.panel_begin = begin;
    down.panel_columns = combine.panel_columns = panel;
    band.launches.push_back(down);
    band.launches.push_back(combine);
    if (data.sizes_only) break;  // every panel has the bytes of the first
  }
}

void plan_band(PlanData& data, const BandChoice& choice) {
  Instances instances(data.caps, data.kernel_specs, data.sizes_only);
  CudaBand launches;
  CudaLaunch route;
  route.kernel = CudaKernel::route_tiles;
  route.token_tile = 8 * choice.gate_up.token_steps;
  route.spec = instances.add_route();
  launches.launches.push_back(route);
  CudaLaunch gate_up = route;
  gate_up.kernel = CudaKernel::gate_up_tiles;
  gate_up.row_tiles = choice.gate_up.row_tiles;
  gate_up.dynamic_bytes = kernels::kSumBytes + ring_bytes(data.caps, choice.gate_up);
  gate_up.max_blocks =
      data.device.multiprocessors * blocks_per_multiprocessor(data.device, choice.gate_up, gate_up.dynamic_bytes);
  gate_up.spec = instances.add_tiles("moe/gate_up_tiles.cu", choice.gate_up, gate_up.dynamic_bytes);
  launches.launches.push_back(gate_up);
  add_down_launches(data, choice, instances, launches);

  Band band{choice.min_tokens, choice.max_tokens, {}, 8 * choice.gate_up.token_steps, 16 * choice.down.row_tiles};
  std::vector<int> named;
  for (const CudaLaunch& launch : launches.launches) {
    if (data.sizes_only) break;
    if (std::find(named.begin(), named.end(), launch.spec) != named.end()) continue;  // thousands of panels have two
    named.push_back(launch.spec);
    band.kernels.push_back(data.kernel_specs[static_cast<std::size_t>(launch.spec)].name());
  }
  data.bands.push_back(std::move(band));
  data.cuda_bands.push_back(std::move(launches));
}

/// Kernels count their items, a token tile and a block of rows each, in 32 bits.
void check_items(const Caps& caps, const Band& band, const CudaLaunch& launch, std::int64_t tiles) {
  if (launch.kernel != CudaKernel::gate_up_tiles && launch.kernel != CudaKernel::down_rows) return;
  const std::int64_t rows = launch.kernel == CudaKernel::gate_up_tiles ? caps.gate_up_rows() : launch.panel_columns;
  const std::int64_t blocks = ceil_div(ceil_div(rows, kCudaUnitRows), launch.row_tiles);
  if (tiles <= kMaxItems / blocks) return;
  // The largest count of routes whose tiles still can be counted: every expert hit, its last tile full.
  const std::int64_t most_tiles = kMaxItems / blocks;
  const std::int64_t routes = caps.experts + (most_tiles - caps.experts + 1) * band.token_tile - 1;
  fail(ErrorCode::unsupported,
       "max_tokens = {} at top_k = {}, experts = {} and {} rows of a projection: {} token tiles x {} blocks of rows "
       "are more items than the {} that a CUDA kernel counts; use {}",
       band.max_tokens, caps.top_k, caps.experts, rows, tiles, blocks, kMaxItems, routes / caps.top_k);
}

/// Bytes of the tile list and of a panel of rows: the most that any band needs.
struct BandBytes {
  std::int64_t tiles = 0, rows = 0;
  std::string tiles_formula, rows_formula;
};

BandBytes band_bytes(const PlanData& data) {
  BandBytes most;
  for (std::size_t i = 0; i < data.bands.size(); ++i) {
    const std::int64_t routes = checked_mul(data.bands[i].max_tokens, data.caps.top_k, "routes (tokens x top_k)");
    // Of the band that reaches the capacity in the caps' words, of another one in its own number.
    const std::string of = data.bands[i].max_tokens == data.caps.max_tokens ? "routes" : std::to_string(routes);
    const std::int64_t tiles = max_token_tiles(routes, data.caps.experts, data.bands[i].token_tile);
    if (const auto bytes = checked_mul(tiles, sizeof(kernels::TokenTile), "token tiles"); bytes > most.tiles) {
      most.tiles = bytes;
      most.tiles_formula =
          routes <= data.caps.experts
              ? fmt::format("{} * {}", of, sizeof(kernels::TokenTile))
              : fmt::format("(experts + ({} - experts) / {}) * {}", of, data.bands[i].token_tile,
                            sizeof(kernels::TokenTile));
    }
    for (const CudaLaunch& launch : data.cuda_bands[i].launches) {
      check_items(data.caps, data.bands[i], launch, tiles);
      if (launch.kernel != CudaKernel::down_rows) continue;
      const std::int64_t values = checked_mul(routes, launch.panel_columns, "rows of a panel");
      if (const auto bytes = checked_mul(values, 4, "rows of a panel"); bytes > most.rows) {
        most.rows = bytes;
        most.rows_formula = fmt::format("{} * {} columns * 4", of, launch.panel_columns);
      }
    }
  }
  return most;
}

void plan_segments(PlanData& data) {
  const Caps& caps = data.caps;
  const std::int64_t routes = checked_mul(caps.max_tokens, caps.top_k, "routes (max_tokens x top_k)");
  const std::int64_t row_bytes = caps.intermediate * dtype_bits(caps.activation_dtype) / 8;
  const BandBytes most = band_bytes(data);
  Arena arena;
  CudaSegments& cuda = data.cuda;
  cuda.sorted_routes = arena.add("sorted_routes", routes * 4, kRoute, kCombine, "routes * 4");
  cuda.activated = arena.add("activated", checked_mul(routes, row_bytes, "activated intermediate"), kGateUp, kCombine,
                             "routes * intermediate * 2");
  cuda.route_position = arena.add("route_position", routes * 4, kRoute, kCombine, "routes * 4");
  cuda.tiles = arena.add("tiles", most.tiles, kRoute, kCombine, most.tiles == 0 ? "0" : most.tiles_formula);
  cuda.counts = arena.add("counts", routes == 0 ? 0 : 8, kRoute, kCombine, "2 * 4");
  if (most.rows > 0)
    cuda.rows = arena.add("rows", most.rows, kDown, kCombine, most.rows_formula);
  arena.place();
  data.segments = arena.segments();
  data.workspace_bytes = arena.bytes();
}

/// Replaces what data.forced_tiles forces. A forced shape of other token steps brings along a shape of these steps for
/// the other projection.
void force_tiles(const PlanData& data, BandChoice& band) {
  const CudaTileChoice& forced = data.forced_tiles;
  if (!forced.gate_up && !forced.down) return;
  const Caps& caps = data.caps;
  const Device& device = data.device;
  const int steps = (forced.gate_up ? *forced.gate_up : *forced.down).token_steps;
  const auto gate_up = forced.gate_up ? forced.gate_up : gate_up_shape(caps, device, steps);
  bool sums = forced.sums.value_or(band.sums);
  auto down = forced.down;
  if (!down && sums) down = sums_shape(caps, device, steps, std::min(band.max_tokens, kMaxSumsTokens));
  if (!down && !forced.sums.value_or(false)) {  // the band's own choice has no instance of these steps
    sums = false;
    down = rows_shape(caps, device, steps);
  }
  check(gate_up && down && down->token_steps == steps, ErrorCode::unsupported,
        "forced tiles: no shapes of {} token steps go together for {} tokens; force both projections", steps,
        band.max_tokens);
  const std::int64_t shared = sums ? sums_shared_bytes(caps, *down, band.max_tokens) : ring_bytes(caps, *down);
  check(kernels::kSumBytes + ring_bytes(caps, *gate_up) <= device.shared_memory_bytes &&
            shared <= device.shared_memory_bytes,
        ErrorCode::unsupported, "forced tiles: a shape needs more than the {} bytes of shared memory of \"{}\"",
        device.shared_memory_bytes, device.name);
  band.gate_up = *gate_up;
  band.down = *down;
  band.sums = sums;
}

}  // namespace

std::int64_t max_token_tiles(std::int64_t routes, std::int64_t experts, std::int64_t token_tile) noexcept {
  const std::int64_t hit = std::min(routes, experts);
  return hit + (routes - hit) / token_tile;
}

std::string cuda_tiles_refusal(const Caps& caps, const Device& device) {
  if (device.multiprocessors < 1)
    return fmt::format("device \"{}\" says {} multiprocessors; describe it with at least 1", device.name,
                       device.multiprocessors);
  if (caps.max_tokens > 0 && (!choose_band(caps, device, 1) || !choose_band(caps, device, caps.max_tokens)))
    return fmt::format(
        "device \"{}\" gives a block {} bytes of shared memory, too few for the kernels of this format; use a device "
        "with at least 96 KiB",
        device.name, device.shared_memory_bytes);
  return {};
}

std::vector<KernelSpec> cuda_tile_kernels(const Caps& caps, const Device& device) {
  std::vector<KernelSpec> specs;
  Instances instances(caps, specs);
  instances.add_route();
  instances.add_combine();
  const std::int64_t most = device.shared_memory_bytes;
  for (const CudaTileShape& shape : kGateUpShapes)
    if (kernels::kSumBytes + ring_bytes(caps, shape) <= most) instances.add_tiles("moe/gate_up_tiles.cu", shape, most);
  for (const CudaTileShape& shape : kDownSumsShapes)
    if (has_sums_instance(caps, shape) && sums_shared_bytes(caps, shape, 1) <= most) instances.add_sums(shape, most);
  for (const CudaTileShape& shape : kDownRowsShapes)
    if (ring_bytes(caps, shape) <= most) instances.add_tiles("moe/down_rows.cu", shape, most);
  return specs;
}

namespace {

/// What forbids a shape; empty when nothing does.
using Reason = std::function<std::string(const CudaTileShape&)>;

std::string shared_memory_reason(const Device& device, std::int64_t bytes) {
  if (bytes <= device.shared_memory_bytes) return {};
  return fmt::format("needs {} bytes of shared memory, \"{}\" gives a block {}", bytes, device.name,
                     device.shared_memory_bytes);
}

/// What is left when nothing forbids a shape: other counts, or a shape that the table has before it.
std::string order_reason(const PlanData& data, const CudaTileShape& shape) {
  for (const Band& band : data.bands)
    if (band.token_tile == 8 * shape.token_steps)
      return fmt::format("a faster one serves the tiles of {} tokens (docs/performance.md)", band.token_tile);
  return fmt::format("no band up to max_tokens = {} has tiles of {} tokens", data.caps.max_tokens,
                     8 * shape.token_steps);
}

template <class Shapes>
void decline(PlanData& data, const char* kernel, CudaKernel kind, const Shapes& shapes, const Reason& forbidden) {
  for (const CudaTileShape& shape : shapes) {
    bool taken = false;
    for (const CudaBand& band : data.cuda_bands)
      for (const CudaLaunch& launch : band.launches)
        taken = taken || (launch.kernel == kind && launch.row_tiles == shape.row_tiles &&
                          launch.token_tile == 8 * shape.token_steps);
    if (taken) continue;
    std::string reason = forbidden(shape);
    if (reason.empty()) reason = order_reason(data, shape);
    data.declined.push_back(
        {fmt::format("{} {}x{}x{}", kernel, shape.row_tiles, shape.token_steps, shape.stages), std::move(reason)});
  }
}

/// Every instance of the tables that this plan does not launch, and why.
void explain(PlanData& data) {
  const Caps& caps = data.caps;
  const Device& device = data.device;
  decline(data, "gate_up_tiles", CudaKernel::gate_up_tiles, kGateUpShapes, [&](const CudaTileShape& shape) {
    return shared_memory_reason(device, kernels::kSumBytes + ring_bytes(caps, shape));
  });
  const std::int64_t slices = ceil_div(caps.hidden, kCudaUnitRows);
  decline(data, "down_sums", CudaKernel::down_sums, kDownSumsShapes, [&](const CudaTileShape& shape) -> std::string {
    if (!has_sums_instance(caps, shape)) return "mxfp4 in fp16 has too few registers for it";
    if (shape.row_tiles > ceil_div(slices, device.multiprocessors))
      return fmt::format("slices of {} columns of {} would leave some of the {} multiprocessors without one",
                         kCudaUnitRows * shape.row_tiles, caps.hidden, device.multiprocessors);
    return shared_memory_reason(device, sums_shared_bytes(caps, shape, std::min(caps.max_tokens, kMaxSumsTokens)));
  });
  const bool sums_only = std::all_of(data.cuda_bands.begin(), data.cuda_bands.end(), [](const CudaBand& band) {
    return band.launches.back().kernel == CudaKernel::down_sums;
  });
  decline(data, "down_rows", CudaKernel::down_rows, kDownRowsShapes, [&](const CudaTileShape& shape) -> std::string {
    if (sums_only) return fmt::format("sums in shared memory serve every count up to {}", caps.max_tokens);
    return shared_memory_reason(device, ring_bytes(caps, shape));
  });
  data.declined.push_back({"naive kernels", "for checks: one thread an output element, every weight read per route"});
}

}  // namespace

void plan_cuda_tiles(PlanData& data) {
  data.steps = {"route", "gate_up", "down", "combine"};
  for (BandChoice& choice : choose_bands(data.caps, data.device)) {
    force_tiles(data, choice);
    plan_band(data, choice);
  }
  plan_segments(data);
  data.weight_bytes = static_cast<std::uint64_t>(cuda_unit_layout(data.caps).total_bytes);
  if (data.sizes_only) return;
  explain(data);
  data.notes.push_back(
      "batch_invariant: always so and free of cost; every instance adds the same products in the same order");
}

}  // namespace fourfold
