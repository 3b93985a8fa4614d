// Stand-alone check and timing of the tensor-core expert kernels through the CUDA runtime: random layers of every
// format against a double-precision reference, bits against bits across tiles, batches and runs, and cold-L2 times.
// Build (from the root of the tree):
//   python3 bench/gpu/make_instances.py > build-tensor/instances.inc
//   nvcc -O2 -std=c++20 -arch=sm_90a --fmad=false -cudart static -Xcompiler -static-libstdc++,-static-libgcc
//        -Ikernels -Ibench/gpu -Ibuild-tensor
//        -o build-tensor/tile_harness bench/gpu/tile_harness.cu
// Run: tile_harness [check|time|all]. Exit code 1 when a check fails.
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "pack_units.h"

struct Instance {
  const char *kernel, *format, *dtype, *activation;
  int row_tiles, token_steps, stages;
  const void* function;
};
#include "instances.inc"
#include "moe/route_tiles.cu"

using namespace fourfold::kernels;
using harness::Fmt;
using harness::Matrix;

#define CK(x)                                                                                      \
  do {                                                                                             \
    const cudaError_t e_ = (x);                                                                    \
    if (e_ != cudaSuccess) {                                                                       \
      printf("CUDA error %s at line %d: %s\n", cudaGetErrorString(e_), __LINE__, g_where.c_str()); \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static std::string g_where;
static int g_sms = 132;
static const char* const kFmtNames[] = {"nvfp4", "mxfp4", "int4", "int4_zp"};

static uint32_t hash32(uint64_t x) {
  x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
  return uint32_t(x);
}
struct Random {
  uint64_t seed, n = 0;
  uint32_t bits() { return hash32(seed * 0x9e3779b97f4a7c15ull + ++n); }
  int below(int k) { return int(bits() % uint32_t(k)); }
  double unit() { return (bits() + 0.5) / 4294967296.0; }
  double sym() { return 2 * unit() - 1; }
};

static const Instance* find(const char* kernel, const char* fmt, bool bf16, const char* act, int rt, int ts) {
  for (const Instance& i : kInstances)
    if (!strcmp(i.kernel, kernel) && !strcmp(i.format, fmt) && !strcmp(i.dtype, bf16 ? "bf16" : "f16") &&
        !strcmp(i.activation, act) && (rt == 0 || i.row_tiles == rt) && (ts == 0 || i.token_steps == ts))
      return &i;
  printf("no instance %s %s %d %s %d %d\n", kernel, fmt, bf16, act, rt, ts);
  exit(1);
}

struct Case {
  int T, K, E, H, I;
  Fmt fmt;
  bool bf16;
  const char* act = "silu";
  int group = 16, scale_type = 0;
  bool bias = false, map = false, on_input = false, ids64 = false, limit = false;
  int routing = 0;  // 0 uniform, 1 duplicates and invalid ids, 2 all to one expert
  bool gated() const { return strcmp(act, "relu2") != 0; }
  std::string text() const {
    char b[256];
    snprintf(b, 256, "t%d k%d e%d h%d i%d %s %s %s g%d st%d%s%s%s%s r%d", T, K, E, H, I, kFmtNames[int(fmt)],
             bf16 ? "bf16" : "f16", act, group, scale_type, bias ? " bias" : "", map ? " map" : "",
             on_input ? " on_input" : "", ids64 ? " ids64" : "", routing);
    return b;
  }
};

template <class T>
static T* upload(const std::vector<T>& v, std::vector<void*>& owned) {
  T* p;
  CK(cudaMalloc(&p, std::max<size_t>(v.size() * sizeof(T), 16)));
  CK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  owned.push_back(p);
  return p;
}

/// How a call is run: token tile, instances, panels of the row path.
struct Path {
  const Instance *gate_up, *down;
  bool rows = false;
  int panel = 0;
};

struct Call {
  RouteTilesParams route{};
  GateUpTilesParams gate_up{};
  DownTilesParams down{};
  CombineRowsParams combine{};
};

static int scale_on_sum(const Instance* i) { return strcmp(i->format, "nvfp4") != 0; }
static size_t ring_bytes(const Instance* i, int unit_bytes) {
  return size_t(kTileWarps) * i->stages * stage_bytes(unit_bytes, i->row_tiles, i->token_steps, scale_on_sum(i));
}

template <class Params>
static void launch(const void* f, int grid, int threads, size_t shared, cudaStream_t s, const Params* params) {
#ifdef EMULATE
  emulate(grid, threads, [=] { reinterpret_cast<void (*)(const Params)>(const_cast<void*>(f))(*params); });
  (void)s, (void)shared;
#else
  cudaLaunchConfig_t c = {};
  c.gridDim = dim3(grid), c.blockDim = dim3(threads), c.dynamicSmemBytes = shared, c.stream = s;
  cudaLaunchAttribute a[1];
  a[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  a[0].val.programmaticStreamSerializationAllowed = 1;
  c.attrs = a, c.numAttrs = 1;
  void* args[1] = {const_cast<Params*>(params)};
  CK(cudaLaunchKernelExC(&c, f, args));
#endif
}

static int blocks_per_sm(const void* f, size_t shared) {
  CK(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  CK(cudaFuncSetAttribute(f, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
  int n = 0;
  CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, kTileThreads, shared));
  if (n == 0) {
    printf("no block fits: %zu bytes, %s\n", shared, g_where.c_str());
    exit(1);
  }
  return std::min(n, 2);
}

/// stages: 1 route, 2 and gate_up, 3 all.
static void run_layer(Call c, const Path& path, bool bf16, cudaStream_t s, int stages = 3) {
  c.route.token_tile = kTokenStep * path.gate_up->token_steps;
  launch(reinterpret_cast<const void*>(&route_tiles), 1, kRouteThreads, 0, s, &c.route);
  if (stages < 2) return;
  const size_t gs = kSumBytes + ring_bytes(path.gate_up, c.gate_up.gate_up.unit_bytes);
  launch(path.gate_up->function, g_sms * blocks_per_sm(path.gate_up->function, gs), kTileThreads, gs, s, &c.gate_up);
  if (stages < 3) return;
  const Instance* d = path.down;
  size_t ds = ring_bytes(d, c.down.down.unit_bytes);
  if (!path.rows) {
    ds += size_t(c.down.tokens) * (16 * d->row_tiles + 8) * 4;
    const int slices = (c.down.down.row_tiles + d->row_tiles - 1) / d->row_tiles;
    launch(d->function, std::min(slices, g_sms * blocks_per_sm(d->function, ds)), kTileThreads, ds, s, &c.down);
    return;
  }
  const Instance* combine = find("combine_rows", "", bf16, "", 0, 0);
  for (int begin = 0; begin < c.down.hidden; begin += path.panel) {
    c.down.panel_begin = c.combine.panel_begin = begin;
    c.down.panel_columns = c.combine.panel_columns = path.panel;
    launch(d->function, g_sms * blocks_per_sm(d->function, ds), kTileThreads, ds, s, &c.down);
    launch(combine->function, int(std::min<int64_t>(c.down.tokens, 4 * g_sms)), kTileThreads, 0, s, &c.combine);
  }
}

static Matrix random_matrix(const Case& c, int n, int d, int parts, Random& r) {
  Matrix m{c.fmt, c.E, n, d, c.group, c.scale_type, parts, {}, {}, {}, {}};
  m.codes.resize(size_t(c.E) * n * d);
  for (auto& v : m.codes) v = r.bits() >> 8 & 15;
  m.scales.resize(size_t(c.E) * n * m.groups());
  for (auto& v : m.scales) {
    const uint32_t b = r.bits();
    if (c.fmt == Fmt::nvfp4) {
      v = b % 16 == 0 ? b >> 8 & 7 : 0x30 + (b >> 8) % 24;  // also zero and subnormal scales
      if (b % 8 == 1) v |= 0x80;
    } else if (c.fmt == Fmt::mxfp4) {
      v = 118 + (b >> 8) % 6;
    } else {
      const float f = float((b & 1 ? 1 : -1) * (0.02 + 0.05 * r.unit()));
      if (c.scale_type == 2) memcpy(&v, &f, 4);
      else v = c.scale_type ? harness::to_f16(f) : harness::to_bf16(f);
    }
  }
  if (c.fmt == Fmt::int4_zp) {
    m.zeros.resize(m.scales.size());
    for (auto& v : m.zeros) v = uint8_t(r.below(16));
  }
  m.global.assign(size_t(c.E) * parts, 1.0f);
  if (c.fmt == Fmt::nvfp4)
    for (auto& v : m.global) v = float(0.02 + 0.03 * r.unit());
  return m;
}

static double activate_ref(const Case& c, double g, double u) {
  const std::string a = c.act;
  auto sig = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double L = a == "swiglu_oai" ? 7 : 1.0;
  if (a == "swiglu_oai" || (a == "silu" && c.limit)) g = std::min(g, L), u = std::clamp(u, -L, L);
  if (a == "silu") return g * sig(g) * u;
  if (a == "swiglu_oai") return g * sig(1.702 * g) * (u + 1);
  if (a == "situ") return 4 * std::tanh(g / 4) * sig(g) * 25 * std::tanh(u / 25);
  if (a == "gelu_tanh") return 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
  return u > 0 ? u * u : 0;
}

static void parallel(int n, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  const int count = std::max(1, int(std::thread::hardware_concurrency()));
  for (int w = 0; w < count; ++w)
    threads.emplace_back([=, &f] {
      for (int i = w; i < n; i += count) f(i);
    });
  for (auto& t : threads) t.join();
}

struct Checked {
  double out_l2 = 0, mid_l2 = 0;
  std::string failure;
};

static Checked check_case(const Case& c, uint64_t seed) {
  g_where = c.text();
  Random r{seed};
  Checked result;
  std::vector<void*> owned;
  const int R = c.T * c.K, n1 = c.gated() ? 2 * c.I : c.I;
  const Matrix m1 = random_matrix(c, n1, c.H, c.gated() ? 2 : 1, r), m2 = random_matrix(c, c.H, c.I, 1, r);
  const auto p1 = harness::pack(m1, c.gated(), c.bf16), p2 = harness::pack(m2, false, c.bf16);
  auto round16 = [&](double v) { return c.bf16 ? harness::to_bf16(v) : harness::to_f16(v); };
  auto value16 = [&](uint16_t h) { return c.bf16 ? double(harness::bf16_value(h)) : harness::f16_value(h); };
  std::vector<uint16_t> x(size_t(c.T) * c.H);
  for (auto& v : x) v = round16(r.sym());
  std::vector<float> weights(R), bias1(size_t(c.E) * n1), bias2(size_t(c.E) * c.H);
  for (auto& v : weights) v = float(r.unit());
  for (auto& v : bias1) v = float(r.sym());
  for (auto& v : bias2) v = float(r.sym());
  // Ids: with a map, global id g is local expert g - 1 and the rest is elsewhere.
  const int id_count = c.map ? c.E + 3 : c.E;
  std::vector<int32_t> map(id_count, -1);
  for (int g = 0; g < id_count; ++g) map[g] = g >= 1 && g <= c.E ? g - 1 : -1;
  std::vector<int32_t> ids(R), experts(R);
  uint32_t invalid = 0;
  for (int i = 0; i < R; ++i) {
    int id = r.below(id_count);
    if (c.routing == 0 && c.K <= id_count)
      while (std::find(ids.begin() + i / c.K * c.K, ids.begin() + i, id) != ids.begin() + i) id = r.below(id_count);
    if (c.routing == 1) {
      const int dice = r.below(12);
      id = dice == 0 ? -1 : dice == 1 ? id_count + 5 : dice == 2 ? -7 : dice < 7 ? r.below(2) : id;
    }
    if (c.routing == 2) id = c.map ? 1 : 0;
    ids[i] = id;
    const bool bad = id < -1 || id >= id_count;
    invalid += bad;
    experts[i] = bad || id < 0 ? -1 : c.map ? map[id] : id;
  }
  std::vector<int64_t> ids64(ids.begin(), ids.end());
  std::vector<int> sorted;
  for (int e = 0; e < c.E; ++e)
    for (int i = 0; i < R; ++i)
      if (experts[i] == e) sorted.push_back(i);

  // Reference.
  std::vector<double> w1(size_t(c.E) * n1 * c.H), w2(size_t(c.E) * c.H * c.I);
  parallel(c.E, [&](int e) {
    for (int i = 0; i < n1; ++i)
      for (int k = 0; k < c.H; ++k) w1[(size_t(e) * n1 + i) * c.H + k] = m1.weight(e, i, k);
    for (int i = 0; i < c.H; ++i)
      for (int k = 0; k < c.I; ++k) w2[(size_t(e) * c.H + i) * c.I + k] = m2.weight(e, i, k);
  });
  std::vector<double> mid(size_t(R) * c.I), ref(size_t(c.T) * c.H, 0.0), xd(x.size());
  for (size_t i = 0; i < x.size(); ++i) xd[i] = value16(x[i]);
  parallel(R, [&](int route) {
    const int e = experts[route];
    if (e < 0) return;
    const double* xr = &xd[size_t(route / c.K) * c.H];
    auto dot = [&](int row) {
      const double* w = &w1[(size_t(e) * n1 + row) * c.H];
      double s = 0;
      for (int k = 0; k < c.H; ++k) s += w[k] * xr[k];
      return (c.on_input ? weights[route] : 1.0) * s + (c.bias ? bias1[size_t(e) * n1 + row] : 0.0);
    };
    for (int i = 0; i < c.I; ++i)
      mid[size_t(route) * c.I + i] = c.gated() ? activate_ref(c, dot(i), dot(c.I + i)) : activate_ref(c, 0, dot(i));
  });
  parallel(c.T, [&](int t) {
    for (int s = 0; s < c.K; ++s) {
      const int route = t * c.K + s, e = experts[route];
      if (e < 0) continue;
      std::vector<double> h(c.I);
      for (int k = 0; k < c.I; ++k) h[k] = value16(round16(mid[size_t(route) * c.I + k]));
      for (int o = 0; o < c.H; ++o) {
        const double* w = &w2[(size_t(e) * c.H + o) * c.I];
        double v = c.bias ? bias2[size_t(e) * c.H + o] : 0.0;
        for (int k = 0; k < c.I; ++k) v += w[k] * h[k];
        ref[size_t(t) * c.H + o] += (c.on_input ? 1.0 : weights[route]) * v;
      }
    }
  });

  // Workspace with guards, poisoned before every run.
  const int panel = 64;
  struct Segment {
    size_t bytes, offset;
  };
  std::vector<Segment> segs;
  size_t total = 0;
  auto add = [&](size_t bytes) {
    segs.push_back({bytes, total});
    total += (bytes + 511) / 256 * 256;
    return segs.size() - 1;
  };
  const size_t s_sorted = add(size_t(R) * 4), s_pos = add(size_t(R) * 4), s_tiles = add(size_t(R) * 16),
               s_counts = add(8), s_act = add(size_t(R) * c.I * 2), s_rows = add(size_t(R) * panel * 4),
               s_out = add(size_t(c.T) * c.H * 2), s_inv = add(4);
  uint8_t* base;
  CK(cudaMalloc(&base, total));
  owned.push_back(base);
  auto at = [&](size_t s) { return base + segs[s].offset; };
  Call call;
  auto matrix = [&](const harness::Packed& p, const Matrix& m, const float* bias) {
    UnitMatrix u{};
    u.units = upload(p.bytes, owned);
    u.global = m.fmt == Fmt::nvfp4 ? upload(m.global, owned) : nullptr;
    u.bias = c.bias ? bias : nullptr;
    u.expert_bytes = p.expert_bytes, u.bias_expert_floats = m.n, u.global_expert_floats = m.parts;
    u.row_tiles = p.row_tiles, u.depth_blocks = p.depth_blocks, u.unit_bytes = p.unit_bytes;
    u.scale_span = p.span, u.scale_type = m.scale_type;
    return u;
  };
  auto& ro = call.route;
  ro.topk_ids = c.ids64 ? (const void*)upload(ids64, owned) : (const void*)upload(ids, owned);
  ro.expert_map = c.map ? upload(map, owned) : nullptr;
  ro.invalid_ids = (UInt32*)at(s_inv);
  ro.sorted_routes = (Int32*)at(s_sorted), ro.route_position = (Int32*)at(s_pos), ro.tiles = (TokenTile*)at(s_tiles);
  ro.counts = (Int32*)at(s_counts), ro.routes = R, ro.id_count = id_count, ro.experts = c.E, ro.ids_are_64_bit = c.ids64;
  auto& gu = call.gate_up;
  gu.x = upload(x, owned), gu.topk_weights = upload(weights, owned), gu.sorted_routes = ro.sorted_routes;
  gu.tiles = ro.tiles, gu.counts = ro.counts, gu.activated = (UInt16*)at(s_act);
  gu.gate_up = matrix(p1, m1, upload(bias1, owned));
  gu.top_k = c.K, gu.hidden = c.H, gu.intermediate = c.I, gu.router_weight_on_input = c.on_input;
  gu.has_limit = c.limit, gu.limit = !strcmp(c.act, "swiglu_oai") ? 7.f : 1.f, gu.alpha = 1.702f, gu.beta = 1.f;
  auto& dn = call.down;
  dn.activated = gu.activated, dn.topk_weights = gu.topk_weights, dn.sorted_routes = ro.sorted_routes;
  dn.tiles = ro.tiles, dn.counts = ro.counts, dn.out = (UInt16*)at(s_out), dn.rows = (float*)at(s_rows);
  dn.down = matrix(p2, m2, upload(bias2, owned));
  dn.tokens = c.T, dn.top_k = c.K, dn.hidden = c.H, dn.intermediate = c.I, dn.router_weight_on_input = c.on_input;
  auto& co = call.combine;
  co.rows = dn.rows, co.topk_weights = gu.topk_weights, co.route_position = ro.route_position, co.out = dn.out;
  co.tokens = c.T, co.top_k = c.K, co.hidden = c.H, co.router_weight_on_input = c.on_input;

  const char* f = kFmtNames[int(c.fmt)];
  auto fail = [&](const std::string& why) {
    if (result.failure.empty()) result.failure = why;
  };
  std::vector<uint8_t> host(total);
  auto run = [&](const Call& k, const Path& path) {
    CK(cudaMemset(base, 0xff, total));
    CK(cudaMemset(at(s_inv), 0, 4));
    run_layer(k, path, c.bf16, cudaStreamPerThread);
    CK(cudaStreamSynchronize(cudaStreamPerThread));
    CK(cudaMemcpy(host.data(), base, total, cudaMemcpyDeviceToHost));
    for (size_t s = 0; s < segs.size(); ++s)
      for (size_t b = segs[s].offset + segs[s].bytes; b < (s + 1 < segs.size() ? segs[s + 1].offset : total); ++b)
        if (host[b] != 0xff) fail("guard behind segment " + std::to_string(s));
    const uint16_t* o = (const uint16_t*)(host.data() + segs[s_out].offset);
    return std::vector<uint16_t>(o, o + size_t(k.down.tokens) * c.H);
  };
  const bool few = !strcmp(c.act, "silu");
  const Path small{find("gate_up_tiles", f, c.bf16, c.act, 2, 1), find("down_sums", f, c.bf16, "silu", 1, 1)};
  const auto out = run(call, small);
  // Routing, intermediate and output against the reference.
  if (((uint32_t*)(host.data() + segs[s_inv].offset))[0] != invalid) fail("invalid ids");
  const int32_t* hs = (const int32_t*)(host.data() + segs[s_sorted].offset);
  for (size_t i = 0; i < sorted.size(); ++i)
    if (hs[i] != sorted[i]) fail("sorted_routes[" + std::to_string(i) + "]");
  if (((int32_t*)(host.data() + segs[s_counts].offset))[1] != int(sorted.size())) fail("live routes");
  const uint16_t* ha = (const uint16_t*)(host.data() + segs[s_act].offset);
  double num = 0, den = 1e-300;
  for (size_t i = 0; i < sorted.size(); ++i)
    for (int k = 0; k < c.I; ++k) {
      const double want = mid[size_t(sorted[i]) * c.I + k], got = value16(ha[i * c.I + k]);
      num += (got - want) * (got - want), den += want * want;
    }
  result.mid_l2 = std::sqrt(num / den);
  num = 0, den = 1e-300;
  for (size_t i = 0; i < out.size(); ++i) {
    const double got = value16(out[i]);
    num += (got - ref[i]) * (got - ref[i]), den += ref[i] * ref[i];
  }
  result.out_l2 = std::sqrt(num / den);
  const double tolerance = c.bf16 ? 2.5e-3 : 6e-4;  // one rounding of the intermediate and one of the result
  if (!(result.mid_l2 <= tolerance)) fail("intermediate");
  if (!(result.out_l2 <= tolerance)) fail("output");
  auto same = [&](const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * 2) == 0;
  };
  if (!same(out, run(call, small))) fail("second run differs");
  if (few) {
    const Path wide{find("gate_up_tiles", f, c.bf16, "silu", 4, 4), find("down_sums", f, c.bf16, "silu", 3, 4)};
    if (!same(out, run(call, wide))) fail("wide tiles differ");
    const Path rows{wide.gate_up, find("down_rows", f, c.bf16, "silu", 2, 4), true, panel};
    if (!same(out, run(call, rows))) fail("row path differs");
  }
  if (c.T > 1) {  // the last token alone
    Call one = call;
    const int t = c.T - 1;
    one.route.topk_ids = (const char*)ro.topk_ids + size_t(t) * c.K * (c.ids64 ? 8 : 4);
    one.route.routes = c.K, one.down.tokens = 1;
    one.gate_up.x += size_t(t) * c.H, one.gate_up.topk_weights += size_t(t) * c.K;
    one.down.topk_weights = one.gate_up.topk_weights;
    const auto alone = run(one, small);
    if (memcmp(alone.data(), &out[size_t(t) * c.H], c.H * 2)) fail("token alone differs");
  }
  for (void* p : owned) CK(cudaFree(p));
  return result;
}

static int check_all() {
  const int residues[] = {32, 112, 128, 144, 224, 312, 352, 464, 480, 496, 512, 1856, 8, 72};
  const int tokens[] = {1, 3, 8, 17, 24, 64, 65};
  const int hidden[] = {64, 72, 256, 520, 136, 1032};
  const int groups[] = {16, 32, 64, 96, 128, 256, 0};
  const char* acts[] = {"swiglu_oai", "situ", "gelu_tanh", "relu2"};
  std::vector<Case> cases;
  int i = 0;
  for (int rep = 0; rep < 14; ++rep)
    for (int f = 0; f < 4; ++f)
      for (int b = 0; b < 2; ++b, ++i) {
        Case c{tokens[(rep + 3 * f + b) % 7], 1 + (rep * 3 + f) % 6, 8, hidden[(rep + f + 2 * b) % 6],
               residues[(rep + 5 * f + 3 * b) % 14], Fmt(f), b == 0};
        if (c.I > 1000) c.T = std::min(c.T, 17), c.H = std::min(c.H, 264);
        c.group = f == 0 ? 16 : f == 1 ? 32 : groups[(rep + b) % 7];
        c.scale_type = f < 2 ? 0 : (rep + f + b) % 3;
        c.bias = i % 3 == 0, c.map = i % 5 == 1, c.on_input = i % 4 == 2, c.ids64 = i % 2, c.limit = i % 7 == 3;
        c.routing = i % 6 == 4 ? 1 : i % 11 == 5 ? 2 : 0;
        cases.push_back(c);
      }
  for (int rep = 0; rep < 24; ++rep) {
    Case c{tokens[rep % 7], 2 + rep % 3, 6, hidden[(rep + 1) % 6], residues[(5 * rep) % 14], rep % 2 ? Fmt::int4 : Fmt::nvfp4,
           true};
    c.act = acts[rep / 2 % 4], c.bias = rep % 3 == 0, c.group = rep % 2 ? groups[rep % 7] : 16;
    c.on_input = rep % 5 == 2;
    if (c.I > 1000) c.T = std::min(c.T, 17), c.H = std::min(c.H, 264);
    cases.push_back(c);
  }
  cases.push_back({17, 8, 160, 640, 64, Fmt::nvfp4, true});
  cases.push_back({130, 6, 4, 320, 96, Fmt::nvfp4, true, "silu", 16, 0, true, false, false, true, false, 1});
  int failed = 0;
  double worst[2] = {0, 0}, worst_mid[2] = {0, 0};
  const char *stride_text = getenv("CASE_STRIDE"), *start_text = getenv("CASE_START");  // a part of the cases
  const size_t stride = stride_text ? atoi(stride_text) : 1, start = start_text ? atoi(start_text) : 0;
  for (size_t n = start; n < cases.size(); n += stride) {
    const Checked r = check_case(cases[n], n + 1);
    const int b = cases[n].bf16 ? 0 : 1;
    worst[b] = std::max(worst[b], r.out_l2), worst_mid[b] = std::max(worst_mid[b], r.mid_l2);
    if (r.failure.empty()) continue;
    if (++failed <= 12)
      printf("FAIL #%zu %s: %s (mid %.2e out %.2e)\n", n, cases[n].text().c_str(), r.failure.c_str(), r.mid_l2, r.out_l2);
  }
  printf("check: %zu cases, %d failed; worst L2 bf16 mid %.2e out %.2e, f16 mid %.2e out %.2e\n", cases.size(), failed,
         worst_mid[0], worst[0], worst_mid[1], worst[1]);
  // Routing alone at its limits.
  struct {
    int T, K, E;
  } big[] = {{8192, 6, 256}, {300, 64, 4096}, {1, 1, 1}, {3072, 8, 160}};
  for (auto& q : big) {
    std::vector<void*> owned;
    const int R = q.T * q.K;
    std::vector<int32_t> ids(R);
    Random rnd{uint64_t(R)};
    for (auto& v : ids) v = rnd.below(q.E + 1) - 1;
    std::vector<int> want;
    std::vector<std::vector<int>> per(q.E);
    for (int r = 0; r < R; ++r)
      if (ids[r] >= 0) per[ids[r]].push_back(r);
    int tiles = 0;
    for (auto& p : per) want.insert(want.end(), p.begin(), p.end()), tiles += int(p.size() + 31) / 32;
    RouteTilesParams p{};
    p.topk_ids = upload(ids, owned);
    p.sorted_routes = upload(std::vector<int32_t>(R, -9), owned);
    p.route_position = upload(std::vector<int32_t>(R, -9), owned);
    p.tiles = upload(std::vector<TokenTile>(R), owned);
    p.counts = upload(std::vector<int32_t>(2), owned);
    p.routes = R, p.id_count = q.E, p.experts = q.E, p.token_tile = 32;
    cudaEvent_t a, b;
    CK(cudaEventCreate(&a)); CK(cudaEventCreate(&b));
    for (int i = 0; i < 2; ++i) {
      CK(cudaEventRecord(a, cudaStreamPerThread));
      launch(reinterpret_cast<const void*>(&route_tiles), 1, kRouteThreads, 0, cudaStreamPerThread, &p);
      CK(cudaEventRecord(b, cudaStreamPerThread));
    }
    CK(cudaStreamSynchronize(cudaStreamPerThread));
    float ms;
    CK(cudaEventElapsedTime(&ms, a, b));
    std::vector<int32_t> got(R), counts(2);
    CK(cudaMemcpy(got.data(), p.sorted_routes, R * 4, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(counts.data(), p.counts, 8, cudaMemcpyDeviceToHost));
    const bool ok = counts[0] == tiles && counts[1] == int(want.size()) && std::equal(want.begin(), want.end(), got.begin());
    failed += !ok;
    printf("route t%d k%d e%d: %s %.1f us\n", q.T, q.K, q.E, ok ? "ok" : "FAIL", ms * 1e3);
    for (void* o : owned) CK(cudaFree(o));
  }
  return failed;
}

#ifndef EMULATE
#include "tile_timing.h"
#endif

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argc > 1 ? argv[1] : "all";
  CK(cudaDeviceGetAttribute(&g_sms, cudaDevAttrMultiProcessorCount, 0));
  const int failed = what == "time" ? 0 : check_all();
#ifndef EMULATE
  if (what != "check") time_all();
#endif
  return failed ? 1 : 0;
}
