// The launches of a CUDA run, decided by the plan: which kernel, how many blocks, how much shared memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace fourfold {

/// Kernels that a run launches; each takes the argument struct of its name (kernels/params).
enum class CudaKernel : int {
  route_resolve,
  route_sort,
  gate_up_naive,
  down_naive,
  route_tiles,
  gate_up_tiles,
  down_sums,
  down_rows,
  combine_rows,
};

/// Blocks of a launch; z is always 1.
struct CudaGrid {
  std::int64_t x = 1;  ///< at most 2^31 - 1
  std::int64_t y = 1;  ///< at most 65535
  bool operator==(const CudaGrid&) const = default;
};

/// One launch of a band, in order. A captured launch serves any routing: nothing here depends on ids.
struct CudaLaunch {
  CudaKernel kernel = CudaKernel::route_resolve;
  int spec = 0;                             ///< index into PlanData::kernel_specs
  std::int64_t max_blocks = 1;              ///< tile kernels: what the device holds at once
  std::int64_t dynamic_bytes = 0;           ///< dynamic shared memory of a block, fixed part
  std::int64_t dynamic_bytes_per_token = 0; ///< and what each live token adds
  int token_tile = 0;                       ///< most tokens of a tile
  int row_tiles = 0;                        ///< tiles of 16 rows of an item
  std::int64_t panel_begin = 0;             ///< down_rows and combine_rows: output columns
  std::int64_t panel_columns = 0;
  bool operator==(const CudaLaunch&) const = default;
  std::int64_t shared_bytes(std::int64_t tokens) const noexcept {
    return dynamic_bytes + tokens * dynamic_bytes_per_token;
  }
};

/// The launches that serve one of Plan::bands(), by the same index.
struct CudaBand {
  std::vector<CudaLaunch> launches;
};

}  // namespace fourfold
