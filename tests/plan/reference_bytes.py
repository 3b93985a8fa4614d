#!/usr/bin/env python3
"""Bytes that b12x, FlashInfer and vLLM's Marlin path reserve, from their published formulae: a second opinion.

Written apart from src/plan/reference and sharing nothing with it.

    tests/plan/reference_bytes.py > tests/data/reference_bytes.csv

writes the table that tests/plan/reference_table_test.cpp compares with; it is checked in, so that the test needs no
Python.
"""
import math
import random

BLOCKS = (8, 16, 32, 48, 64)
HEADER = "request,problem,multiprocessors,total_bytes,other_name,other_bytes"


def up(value, unit):
    return -(-value // unit) * unit


def power_of_two(value):
    return 1 << max(0, value - 1).bit_length()


def chosen_block(tokens, top_k, experts):
    for block in BLOCKS:
        if tokens * top_k / experts < 0.9 * block:
            return block
    return 64


def slot_count(routes, block, experts):
    worst = routes + experts * (block - 1)
    return min(worst, routes * block) if routes < experts else worst


def plane(columns, slots, block, sms):
    words = min(columns * slots, sms * 4 * block * 256)
    return 4 * max(1, words * 2 if block == 8 else words)


def end_of(sizes, alignment=16, start=0):
    end = start
    for size in sizes:
        end = up(end, alignment) + size
    return end


def b12x(p, sms, pin=None, trellis=False, packed=False):
    """(total, core) of the arena."""
    t, k, e, eg, h, i = (p[n] for n in ("t", "k", "e", "eg", "h", "i"))
    columns = 2 * i if p["gated"] else i
    capacity = t if trellis else power_of_two(t)
    row_tokens = t if eg else capacity
    packed_experts = eg or e
    first, last = chosen_block(1, k, packed_experts), chosen_block(capacity, k, packed_experts)
    blocks = [pin] if pin else [last] if trellis else [b for b in BLOCKS if first <= b <= last]
    slots = {b: slot_count(capacity * k, b, packed_experts) for b in blocks}
    reduced = dict(slots)
    if packed and not eg and not trellis:
        for m in range(1, min(t, 8 if p["dtype"] == "bf16" and p["gated"] else 6) + 1):
            own = pin or chosen_block(m, k, e)
            if own in reduced:
                reduced[own] = max(reduced[own], m * k * own)
    rows = row_tokens * k
    cache2 = rows * i * 2
    native = not packed and not trellis
    micro = (native and p["dtype"] == "bf16" and not eg and k <= 32 and h % 128 == 0 and h <= 6144 and i % 16 == 0
             and (p["format"] != "mxfp4" or (i % 32 == 0 and (i <= 256 or i % 256 == 0))))
    if micro:
        cache2 = max(cache2, 4 * min(capacity, 8) * math.ceil((i // 2) / 128) * 128 * k)
    sizes = [rows * max(columns, h) * 2, cache2,
             max(plane(columns, reduced[b], b, sms) for b in blocks), max(plane(h, reduced[b], b, sms) for b in blocks),
             4 * max(slots.values()), 4 * max(-(-slots[b] // b) for b in blocks), 4, 4 * (packed_experts + 1)]
    if trellis:
        sizes += [4 * e, 4 * t * h, 2 * rows * h, 2 * rows * h, 4 * (4 * sms + 2)]
    router = 0 if eg else up(end_of([2 * t * e, 4 * t * k, 4 * t * k, 4 * t * k]), 16)
    core = end_of(sizes)
    if eg:
        core = up(core, 16)
    return router + core, core


def flashinfer(p, tile):
    """(one arena, all six)."""
    def arena(tile_rows):
        routes = p["t"] * p["k"]
        tiles = routes if routes <= p["e"] else (routes + p["e"] * (tile_rows - 1)) // tile_rows
        return tiles * tile_rows * 2 * (p["h"] + p["i"])
    return arena(tile), sum(arena(x) for x in (8, 16, 32, 64, 128, 192))


def marlin(p, sms):
    """(direct, provisioned)."""
    t, k, e, h, i = (p[n] for n in ("t", "k", "e", "h", "i"))
    ids = p["eg"] or e
    columns = 2 * i if p["gated"] else i
    pairs = t * k
    block = chosen_block(t, k, e)
    slots = slot_count(pairs, block, ids)
    scratch = max(plane(columns, slots, block, sms), plane(h, slots, block, sms))
    small = 4 * slots + 4 * -(-slots // block) + 4 * (ids + 1) + 4 + 16 * sms
    wide = pairs * max(columns, h) * 2
    return wide + pairs * i * 2 + scratch + small, wide + pairs * max(i, h) * 2 + scratch + small


def text(p):
    words = [f"t{p['t']}", f"k{p['k']}", f"e{p['e']}", f"h{p['h']}", f"i{p['i']}"]
    if p["eg"]:
        words.append(f"eg{p['eg']}")
    return " ".join(words + [p["format"], p["dtype"], p["activation"]])


def random_problem(rng, width, system):
    activations = {"b12x-trellis": ["silu", "situ"], "marlin": ["silu", "relu2", "gelu_tanh"]}
    activation = rng.choice(activations.get(system, ["silu", "situ", "relu2"]))
    e = rng.choice([1, 8, 16, 64, 128, 160, 192, 256, 512])
    p = {"t": rng.choice([1, 2, 7, 8, 9, 33, 64, 100, 129, 500, 512, 1000, 1536, 3072, 5000, 8192, 16384]),
         "k": rng.choice([1, 2, 4, 6, 8, 10, 22]), "e": e, "eg": 0, "h": width * rng.randint(2, 56),
         "i": width * rng.randint(1, 24), "format": "nvfp4", "dtype": "bf16", "activation": activation,
         "gated": activation != "relu2"}
    if system == "b12x":
        p["format"] = rng.choice(["nvfp4", "mxfp4"])
        p["dtype"] = rng.choice(["bf16", "f16"])
    if system in ("b12x", "marlin") and rng.random() < 0.3:
        p["eg"] = e * rng.randint(1, 8)
        p["dtype"] = "bf16"
    return p


def rows(rng):
    for _ in range(60):
        sms = rng.choice([108, 132, 148, 170, 188])
        pin = rng.choice([None, None, *BLOCKS])
        p = random_problem(rng, 128, "b12x")
        packed = p["format"] == "mxfp4"  # widths are multiples of 128 here
        total, core = b12x(p, sms, pin, packed=packed)
        yield "b12x" + (f":block={pin}" if pin else ""), p, sms, total, "core_bytes", core
    for _ in range(12):  # native tails and both layouts
        sms = rng.choice([132, 188])
        p = random_problem(rng, 128, "b12x")
        p["format"], p["eg"], p["i"] = rng.choice(["nvfp4", "mxfp4"]), 0, 16 * rng.randint(2, 60)
        native = p["format"] == "nvfp4" or p["i"] % 128 != 0
        total, core = b12x(p, sms, packed=not native)
        yield "b12x", p, sms, total, "core_bytes", core
        p = {**p, "i": 256 * rng.randint(1, 8)}
        total, core = b12x(p, sms, packed=True)
        yield "b12x:layout=packed", p, sms, total, "core_bytes", core
    for _ in range(40):
        sms = rng.choice([132, 188])
        pin = rng.choice([None, None, *BLOCKS])
        p = random_problem(rng, 128, "b12x-trellis")
        total, core = b12x(p, sms, pin, trellis=True)
        yield "b12x-trellis" + (f":block={pin}" if pin else ""), p, sms, total, "core_bytes", core
    for _ in range(30):
        p, tile = random_problem(rng, 64, "flashinfer"), rng.choice([8, 16, 32, 64, 128, 192])
        one, six = flashinfer(p, tile)
        yield f"flashinfer:tile={tile}", p, 148, one, "retained_bytes", six
    for _ in range(40):
        p, sms = random_problem(rng, 64, "marlin"), rng.choice([108, 132, 148])
        direct, provisioned = marlin(p, sms)
        yield "marlin", p, sms, direct, "provisioned_bytes", provisioned


def main():
    print(HEADER)
    for request, problem, sms, total, name, other in rows(random.Random(8)):
        print(f"{request},{text(problem)},{sms},{total},{name},{other}")


if __name__ == "__main__":
    main()
