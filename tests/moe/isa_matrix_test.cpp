// Every instruction set of this machine x dtype x format x activation against the oracle (BL-39).
#include <gtest/gtest.h>

#include <iostream>

#include "support/moe_layer.h"

using namespace fourfold;

namespace {

constexpr const char* kFormats[] = {"nvfp4",     "mxfp4",       "int4 g16", "int4 g32 zp",
                                    "int4 g128", "int4 g96 zp", "int4 grow"};
constexpr const char* kDTypes[] = {"bf16", "f16", "f32"};
constexpr const char* kActivations[] = {"silu", "silu limit=0.5", "swiglu_oai", "swiglu_oai limit=2 alpha=1.2 beta=0.5",
                                        "situ", "gelu_tanh",      "relu2"};

}  // namespace

TEST(IsaMatrix, NamesWhatItRan) {
  std::string names;
  for (const auto& backend : support::backends()) names += std::string(cpu_isa_name(backend->device().isa)) + " ";
  std::cout << "instruction sets of this machine: " << names << "\n";
  RecordProperty("isa", names);
  EXPECT_EQ(names.rfind("portable", 0), 0u) << "the baseline runs everywhere";
}

TEST(IsaMatrix, EveryCombination) {
  std::int64_t ran = 0;
  for (const auto& backend : support::backends())
    for (const char* format : kFormats)
      for (const char* dtype : kDTypes)
        for (const char* activation : kActivations)
          for (std::int64_t tokens : {1, 4, 19}) {
            const bool bias = ran % 2 == 1;
            const Caps caps = support::caps_of(std::string("t19 k2 e3 h136 i72 ") + format + " " + dtype + " " +
                                               activation + (bias ? " bias" : ""));
            EXPECT_TRUE(support::problem_fits(caps, tokens, ++ran, *backend, {.plant_dead_ids = true}));
          }
  EXPECT_EQ(ran, static_cast<std::int64_t>(support::backends().size() * 7 * 3 * 7 * 3));
}

// Long rows: many groups, several chunks of an unpacked panel, more tokens than a register block.
TEST(IsaMatrix, LongRows) {
  for (const auto& backend : support::backends())
    for (const char* format : {"nvfp4", "mxfp4", "int4 g128", "int4 g32 zp", "int4 grow"})
      for (const char* dtype : kDTypes)
        for (const char* sizes : {"t21 k1 e1 h2312 i136 ", "t21 k1 e1 h136 i2312 "})
          EXPECT_TRUE(support::problem_fits(support::caps_of(std::string(sizes) + format + " " + dtype + " silu"), 21,
                                            9, *backend));
}

TEST(IsaMatrix, AnUnknownCapIsRefused) {
  Settings settings;
  settings.cpu_isa = "avx1024";
  EXPECT_THROW(cpu_backend(settings), Error);
}
