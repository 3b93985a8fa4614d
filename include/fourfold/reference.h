// What other systems reserve for the same problem, byte for byte, rebuilt from their published formulae.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fourfold/plan.h"

namespace fourfold {

/// One buffer of another system.
struct ReferenceSegment {
  std::string name;         ///< as that system calls it
  std::string formula;      ///< symbolic
  std::string numbers;      ///< the formula with its numbers put in
  std::uint64_t bytes = 0;  ///< exact, without the padding behind it
};

/// What one system reserves. Segments and totals are empty when `refused` is not.
struct ReferenceBill {
  std::string system;   ///< as asked for: "b12x", "b12x-trellis:block=64", "flashinfer:tile=64", "marlin"
  std::string refused;  ///< the rule of that system that the problem breaks, with the value; empty when it is priced
  std::vector<ReferenceSegment> segments;
  std::uint64_t total_bytes = 0;  ///< what that system reserves, padding between segments included
  /// Further totals by name. b12x: core_bytes (without the router's part), full_sweep_bytes (sized for every block, as
  /// before its planner looked at what can be chosen). flashinfer: retained_bytes (one arena for each route tile).
  /// marlin: provisioned_bytes (as its serving stack sizes the two row buffers).
  std::vector<std::pair<std::string, std::uint64_t>> totals;
  std::vector<std::int64_t> blocks;  ///< rows of the route blocks that a count up to the capacity can choose
  std::int64_t capacity_tokens = 0;  ///< what max_tokens is rounded to
  std::vector<std::string> notes;
};

/// The systems that can be priced: "b12x", "b12x-trellis", "flashinfer", "marlin". Pure.
std::vector<std::string> reference_systems();

/// Prices `request` = SYSTEM[:OPTION=VALUE]... for the problem on a device with `device.multiprocessors`. Options:
///   b12x          block=8|16|32|48|64 (a pinned route block); layout=native|packed
///   b12x-trellis  block=...; bits=3..6
///   flashinfer    tile=8|16|32|64|128|192 (route tile, default 128); tactics=1..6 (arenas kept, default 1)
///   marlin        none
/// Throws usage for a system or an option that is none, with those there are. A problem that the system does not serve
/// is an answer (`refused`), not an error. Pure, thread-safe.
ReferenceBill reference_bill(std::string_view request, const Caps& caps, const Device& device);

}  // namespace fourfold
