// fourfold doctor --capture: whether the kernels of the batch sizes that a server captures are there before it starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fourfold::cli {

struct CaptureOptions {
  std::vector<std::int64_t> sizes;  ///< token counts
  std::string problem;
  std::string device;  ///< empty: the problem's @arch, else the first GPU
  bool json = false;
};

/// Prints a row for each size. Gives 0 when every kernel is in a pack or in the cache, 3 otherwise. Throws
/// unsupported for a size beyond the capacity and usage for a CPU.
int check_captures(const CaptureOptions& options);

}  // namespace fourfold::cli
