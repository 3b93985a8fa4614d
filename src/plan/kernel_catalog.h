// Every kernel there is for an architecture: what packs, lists and compile tests are made from. Found by planning, so
// that it holds what plans launch and nothing else.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fourfold/plan.h"
#include "plan/kernel_spec.h"

namespace fourfold {

/// Every kernel that a plan for `architecture` ("sm_90a") can launch, ascending by name, each once. Throws usage with
/// the architectures there are for another one. Pure; takes some milliseconds.
std::vector<KernelSpec> kernel_catalog(const std::string& architecture);

/// The kernels of the plans of `problems` alone, in the same order. Throws usage as above, unsupported with planning's
/// reason for caps that cannot run there. Pure.
std::vector<KernelSpec> kernels_of_problems(const std::string& architecture, std::span<const Caps> problems);

}  // namespace fourfold
