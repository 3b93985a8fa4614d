// Which kernels a verb is about: --arch and --problem.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "fourfold/plan.h"

namespace fourfold::cli {

/// As the user wrote it.
struct KernelChoice {
  std::string architecture;
  std::vector<std::string> problems;
};

void add_kernel_options(CLI::App& verb, KernelChoice& choice);

/// What it means: all kernels of an architecture, or those of some problems.
struct ChosenKernels {
  std::string architecture;
  std::vector<Caps> problems;
};

/// --arch, else the @arch of a problem, else the first GPU of this machine. Throws usage when there is none of these,
/// or when they contradict each other.
ChosenKernels chosen_kernels(const KernelChoice& choice);

}  // namespace fourfold::cli
