// Fills a table of micro-kernels for one policy. Internal linkage, as in micro_kernel_loops.h.
#pragma once

#include "cpu/micro_kernel_activation.h"
#include "cpu/micro_kernel_loops.h"

namespace fourfold::cpu {
namespace {

template <class Isa>
constexpr MicroKernels make_table(const char* name) {
  return {name,
          // In the order of PanelFormat.
          {direct<Isa, Codes::e2m1, Scales::e4m3>, direct<Isa, Codes::e2m1, Scales::e8m0>,
           direct<Isa, Codes::int4, Scales::bf16>, direct<Isa, Codes::int4, Scales::f16>,
           direct<Isa, Codes::int4, Scales::f32>, direct<Isa, Codes::int4_zeros, Scales::bf16>,
           direct<Isa, Codes::int4_zeros, Scales::f16>, direct<Isa, Codes::int4_zeros, Scales::f32>},
          {blocked<Isa, Codes::e2m1, Scales::e4m3>, blocked<Isa, Codes::e2m1, Scales::e8m0>,
           blocked<Isa, Codes::int4, Scales::bf16>, blocked<Isa, Codes::int4, Scales::f16>,
           blocked<Isa, Codes::int4, Scales::f32>, blocked<Isa, Codes::int4_zeros, Scales::bf16>,
           blocked<Isa, Codes::int4_zeros, Scales::f16>, blocked<Isa, Codes::int4_zeros, Scales::f32>},
          activate<Isa>,
          accumulate<Isa>};
}

}  // namespace
}  // namespace fourfold::cpu
