// The residue matrix: which problems prove that no kernel reads or writes behind the logical sizes. Pure: known without
// a GPU, so that a test without one can prove what the lists cover.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "moe/random_call.h"

namespace fourfold::gpu_test {

/// Intermediate sizes: every residue of 64 that a multiple of 8 of a sharded model leaves, and sizes around 512.
inline constexpr std::array<int, 12> kResidueIntermediates = {32,  112, 128, 144, 224, 312,
                                                              352, 464, 480, 496, 512, 1856};
/// Token counts: one below, at and above steps of 8 and tiles; 300 is behind the last count whose sums stay in shared
/// memory, so its second projection goes through panels of rows.
inline constexpr std::array<int, 8> kResidueTokens = {1, 3, 8, 17, 24, 64, 65, 300};
inline constexpr std::array<const char*, 7> kResidueFormats = {"nvfp4",     "mxfp4",       "int4 g16", "int4 g32 zp",
                                                               "int4 g128", "int4 g96 zp", "int4 grow"};
inline constexpr std::array<const char*, 7> kResidueActivations = {
    "silu", "silu limit=0.5", "swiglu_oai", "swiglu_oai limit=2 alpha=1.2 beta=0.5", "situ", "gelu_tanh", "relu2"};

/// One problem with its tokens. The levels that it was made of, in the order of residue_factors().
struct ResidueCase {
  std::string problem;
  RandomCallOptions options;
  std::vector<int> levels;
};

/// A property of a case: its name and the texts of its levels.
struct ResidueFactor {
  std::string name;
  std::vector<std::string> levels;
};
/// intermediate, tokens, format and activation first. Pure.
const std::vector<ResidueFactor>& residue_factors();

/// Every intermediate size with every token count and every format; the other factors take turns. Pure.
std::vector<ResidueCase> residue_matrix();
/// Few cases in which each two levels of each two factors meet: small enough for a sanitizer. Cheapest first. Pure.
std::vector<ResidueCase> pairwise_cases();

}  // namespace fourfold::gpu_test
