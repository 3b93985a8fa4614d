#!/usr/bin/env python3
"""Writes instances.inc for tile_harness.cu: every kernel instance under a name of its own, and a table of them."""
import sys

FORMATS = ["nvfp4", "mxfp4", "int4", "int4_zp"]
DTYPES = ["bf16", "f16"]
ACTIVATIONS = ["silu", "swiglu_oai", "situ", "gelu_tanh", "relu2"]

rows = []  # (kernel, format, dtype, activation, row tiles, token steps, stages)
for f in FORMATS:
    for d in DTYPES:
        rows += [("gate_up_tiles", f, d, "silu", 2, 1, 5), ("gate_up_tiles", f, d, "silu", 4, 4, 3)]
        rows += [("down_sums", f, d, "silu", 1, 1, 6), ("down_sums", f, d, "silu", 3, 4, 3)]
        rows += [("down_rows", f, d, "silu", 2, 4, 3)]
for a in ACTIVATIONS[1:]:
    rows += [("gate_up_tiles", "nvfp4", "bf16", a, 2, 1, 5), ("gate_up_tiles", "int4", "bf16", a, 2, 1, 5)]
for shape in [(1, 1, 6), (4, 1, 3), (2, 2, 3), (4, 2, 4), (2, 4, 3)]:
    rows += [("gate_up_tiles", "nvfp4", "bf16", "silu") + shape]
for f in ["mxfp4", "int4"]:
    rows += [("gate_up_tiles", f, "bf16", "silu", 2, 2, 3), ("down_sums", f, "bf16", "silu", 3, 2, 4),
             ("down_sums", f, "bf16", "silu", 3, 1, 6)]
for shape in [(2, 1, 6), (3, 1, 6), (1, 2, 4), (2, 2, 4), (3, 2, 4), (1, 4, 3), (2, 4, 3)]:
    rows += [("down_sums", "nvfp4", "bf16", "silu") + shape]
out, table = [], []
for i, (k, f, d, a, rt, ts, st) in enumerate(dict.fromkeys(rows)):
    name = f"{k}_{i}"
    defs = dict(FORMAT=f, DTYPE=d, ACTIVATION=a, ROW_TILES=rt, TOKEN_STEPS=ts, STAGES=st)
    out += [f"#define {m} {v}" for m, v in defs.items()] + [f"#define {k} {name}", f'#include "moe/{k}.cu"', f"#undef {k}"]
    out += [f"#undef {m}" for m in defs]
    table.append(f'  {{"{k}", "{f}", "{d}", "{a}", {rt}, {ts}, {st}, reinterpret_cast<const void*>(&{name})}},')
for d in DTYPES:
    out += [f"#define DTYPE {d}", f"#define combine_rows combine_rows_{d}"]
    # combine<> and its constants may be compiled once only.
    out += ['#include "moe/combine_rows.cu"' if d == "bf16" else
            'extern "C" __global__ void __launch_bounds__(256) combine_rows_f16(const __grid_constant__ '
            'fourfold::kernels::CombineRowsParams p) { fourfold::kernels::combine<fourfold::kernels::Float16::f16>(p); }']
    out += ["#undef combine_rows", "#undef DTYPE"]
    table.append(f'  {{"combine_rows", "", "{d}", "", 0, 0, 0, reinterpret_cast<const void*>(&combine_rows_{d})}},')
print("\n".join(out))
print("static const Instance kInstances[] = {")
print("\n".join(table))
print("};")
