// Tile shapes in words, plans with forced shapes, and the shapes that could serve a case.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fourfold/benchmark.h"
#include "plan/cuda_tile_choice.h"

namespace fourfold::benchmark {

/// "2x1x3": ROW_TILES x TOKEN_STEPS x STAGES. Pure.
std::string shape_text(const CudaTileShape& shape);

/// The plan that serves a case: for its capacity, with its forced shapes. A down shape may begin with "sums:" or
/// "rows:", which names the kernel; without it the planner's kernel stays. Throws usage for a text that is no shape,
/// unsupported as plan and plan_with_tiles do.
Plan plan_of(const BenchmarkCase& subject, const Device& device);

/// A shape that could serve the case, ready to be forced.
struct Candidate {
  std::string stage;   ///< "gate_up" or "down"
  std::string kernel;  ///< name of the instance
  std::string shape;
  BenchmarkCase subject;  ///< with the shape forced
  bool chosen = false;    ///< the planner's own
};
/// Every shape of the tables that the device can run for the case: gate_up with whatever down goes with it, down behind
/// the first gate_up of its token steps. Throws as plan_of does.
std::vector<Candidate> candidates(const BenchmarkCase& subject, const Device& device);

}  // namespace fourfold::benchmark
