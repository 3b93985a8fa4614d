// The operation evaluated in double precision straight from its definition: what every backend is compared with.
#pragma once

#include <cstdint>
#include <vector>

#include "fourfold/moe.h"

namespace fourfold {

/// The true result of one call and how far a correct implementation may be from it.
struct ReferenceResult {
  std::vector<double> expected;   // [T, H]; NaN or infinite where the definition says so
  std::vector<double> bound;      // [T, H] largest allowed |out - expected|; meaningless where expected is not finite
  std::uint64_t invalid_ids = 0;  // ids outside [-1, id_count), and ids whose map entry is outside [-1, experts)
};

/// Evaluates `tensors` (x, topk_ids, topk_weights, expert_map; weights, out and invalid_ids are not looked at) on the
/// packed source weights. Allocates; uses all OpenMP threads; the result does not depend on their number. Shapes and
/// dtypes must fit `caps`; throws bad_input otherwise.
///
/// bound = 6 r sqrt(sum f^2 w2^2 a^2) + 2 r |expected| + 1e-6 sum |f w2 a| + 1e-30, where a is the activated
/// intermediate, f the routing weight (1 when it went to the input), and r half of the activation dtype's unit
/// roundoff: the intermediate and the output are rounded once, all sums are fp32. f is summed over the slots of a token
/// that name the same expert. With fp32 activations nothing hides the rounding of the sums themselves, so |f w2| times
/// the effect of the first projection's fp32 error is added.
ReferenceResult reference_moe(const Caps& caps, const StackedExperts& experts, const MoeTensors& tensors);

}  // namespace fourfold
