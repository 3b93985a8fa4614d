// Cold-L2 times of the layer for tile_harness.cu: weight sets and routings change with every call of a graph.
#pragma once

static __global__ void fill_units(uint32_t* p, size_t words, int unit_bytes, int kind, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x) {
    uint64_t x = i * 2654435761ull + seed;
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
    uint32_t r = uint32_t(x);
    if (i * 4 % unit_bytes >= 512)  // plausible scales: E4M3 0x38 .., E8M0 120 .., bf16 0x3c..
      r = kind == 0 ? 0x38383838u + (r & 0x07070707u) : kind == 1 ? 0x78787878u + (r & 0x03030303u)
                                                                  : 0x3c003c00u + (r & 0x007f007fu);
    p[i] = r;
  }
}

struct Shape {
  const char* name;
  int K, E, H, I;
};

static float graph_us(const std::function<void(cudaStream_t)>& enqueue, int reps) {
  cudaStream_t s;
  CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  cudaGraph_t g;
  cudaGraphExec_t ge;
  CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  enqueue(s);
  CK(cudaStreamEndCapture(s, &g));
  CK(cudaGraphInstantiate(&ge, g, 0));
  CK(cudaGraphUpload(ge, s));
  cudaEvent_t a, b;
  CK(cudaEventCreate(&a)); CK(cudaEventCreate(&b));
  std::vector<float> t;
  for (int i = 0; i < reps + 2; ++i) {
    usleep(3000);
    CK(cudaEventRecord(a, s));
    CK(cudaGraphLaunch(ge, s));
    CK(cudaEventRecord(b, s));
    CK(cudaStreamSynchronize(s));
    float ms;
    CK(cudaEventElapsedTime(&ms, a, b));
    if (i >= 2) t.push_back(ms * 1e3f);
  }
  CK(cudaEventDestroy(a)); CK(cudaEventDestroy(b));
  CK(cudaGraphExecDestroy(ge)); CK(cudaGraphDestroy(g)); CK(cudaStreamDestroy(s));
  std::sort(t.begin(), t.end());
  return t[t.size() / 2];
}

static void time_shape(const Shape& q, Fmt fmt, int group, const std::vector<int>& token_counts, uint8_t* pool, size_t pool_bytes,
                       uint8_t* work, bool all_variants) {
  Matrix m1{fmt, q.E, 2 * q.I, q.H, group, 0, 2, {}, {}, {}, {}}, m2{fmt, q.E, q.H, q.I, group, 0, 1, {}, {}, {}, {}};
  const int unit = harness::unit_bytes_of(m1);
  auto describe = [&](const Matrix& m, bool gated) {
    UnitMatrix u{};
    u.row_tiles = gated ? m.n / 16 : (m.n + 15) / 16, u.depth_blocks = (m.d + 63) / 64, u.unit_bytes = unit;
    u.expert_bytes = Int64(u.row_tiles) * u.depth_blocks * unit;
    u.scale_span = harness::span_of(m), u.global_expert_floats = m.parts;
    return u;
  };
  UnitMatrix u1 = describe(m1, true), u2 = describe(m2, false);
  const size_t layer = size_t(u1.expert_bytes + u2.expert_bytes) * q.E;
  const int sets = std::max<int>(1, int(pool_bytes / layer));
  fill_units<<<2048, 256>>>((uint32_t*)pool, std::min(pool_bytes, layer * sets) / 4, unit, fmt == Fmt::nvfp4 ? 0 : fmt == Fmt::mxfp4 ? 1 : 2, 7);
  std::vector<void*> owned;
  u1.global = u2.global = fmt == Fmt::nvfp4 ? upload(std::vector<float>(2 * q.E, 0.001f), owned) : nullptr;
  const double expert_bytes = 3.0 * q.H * q.I * (fmt == Fmt::nvfp4 ? 0.5625 : fmt == Fmt::mxfp4 ? 0.53125 : 0.5 + 2.0 / group);
  const char* f = kFmtNames[int(fmt)];
  for (int T : token_counts) {
    const int calls = T <= 8 ? std::max(8, 2 * sets) : T <= 512 ? std::max(4, sets) : 2, R = T * q.K;
    const int panel = 384;
    Random rnd{uint64_t(T * 131 + q.H)};
    std::vector<uint16_t> x(size_t(T) * q.H);
    for (auto& v : x) v = harness::to_bf16(rnd.sym());
    auto* dx = upload(x, owned);
    auto* dw = upload(std::vector<float>(R, 0.125f), owned);
    double hit = 0;
    std::vector<Call> list;
    for (int i = 0; i < calls; ++i) {
      std::vector<int32_t> ids(R);
      std::vector<bool> seen(q.E);
      for (int r = 0; r < R; ++r) {
        int id = rnd.below(q.E);
        while (std::find(ids.begin() + r / q.K * q.K, ids.begin() + r, id) != ids.begin() + r) id = rnd.below(q.E);
        ids[r] = id, seen[id] = true;
      }
      hit += double(std::count(seen.begin(), seen.end(), true)) / calls;
      Call k;
      uint8_t* w = work;
      auto take = [&](size_t bytes) {
        uint8_t* p = w;
        w += (bytes + 255) / 256 * 256;
        return p;
      };
      k.route.topk_ids = upload(ids, owned);
      k.route.sorted_routes = (Int32*)take(size_t(R) * 4), k.route.route_position = (Int32*)take(size_t(R) * 4);
      k.route.tiles = (TokenTile*)take(size_t(R) * 16), k.route.counts = (Int32*)take(8);
      k.route.routes = R, k.route.id_count = k.route.experts = q.E;
      uint8_t* weights = pool + size_t(i % sets) * layer;
      k.gate_up.gate_up = u1, k.gate_up.gate_up.units = weights;
      k.down.down = u2, k.down.down.units = weights + size_t(u1.expert_bytes) * q.E;
      k.gate_up.x = dx, k.gate_up.topk_weights = k.down.topk_weights = k.combine.topk_weights = dw;
      k.gate_up.sorted_routes = k.down.sorted_routes = k.route.sorted_routes;
      k.gate_up.tiles = k.down.tiles = k.route.tiles, k.gate_up.counts = k.down.counts = k.route.counts;
      k.gate_up.activated = (UInt16*)take(size_t(R) * q.I * 2), k.down.activated = k.gate_up.activated;
      k.gate_up.top_k = k.down.top_k = k.combine.top_k = q.K;
      k.gate_up.hidden = k.down.hidden = k.combine.hidden = q.H, k.gate_up.intermediate = k.down.intermediate = q.I;
      k.down.tokens = k.combine.tokens = T, k.down.out = k.combine.out = (UInt16*)take(size_t(T) * q.H * 2);
      k.down.rows = (float*)take(T > 256 ? size_t(R) * panel * 4 : 16), k.combine.rows = k.down.rows;
      k.combine.route_position = k.route.route_position;
      list.push_back(k);
    }
    const double floor_us = hit * expert_bytes / 4.3e6;
    auto time = [&](const Path& path, int stages) {
      g_where = std::string(q.name) + " t" + std::to_string(T);
      return graph_us([&](cudaStream_t s) {
               for (auto& k : list) run_layer(k, path, true, s, stages);
             }, T > 512 ? 3 : 9) / calls;
    };
    // Token steps by mean tokens of a hit expert, and the neighbours.
    std::vector<int> steps = T <= 8 ? std::vector<int>{1} : T <= 64 ? std::vector<int>{1, 2} : T <= 256 ? std::vector<int>{2, 4} : std::vector<int>{4};
    if (!all_variants) steps = {T <= 8 ? 1 : 2};
    const int own = (q.H / 16 + g_sms - 1) / g_sms;  // row tiles of a slice so that every SM owns one
    printf("%-9s %s t%-4d hit %5.1f floor %6.1f |", q.name, f, T, hit, floor_us);
    float best = 1e30f;
    std::string best_text;
    bool first = true;
    for (int ts : steps) {
      const Instance* best_gu = nullptr;
      float best_gu_us = 1e30f;
      for (const Instance& i : kInstances) {
        if (strcmp(i.kernel, "gate_up_tiles") || strcmp(i.format, f) || strcmp(i.dtype, "bf16") || strcmp(i.activation, "silu") || i.token_steps != ts) continue;
        const Path p{&i, nullptr};
        if (first) printf(" r %.1f gu", time(p, 1)), first = false;
        const float us = time(p, 2);
        printf(" %dx%d:%.1f", i.row_tiles, ts, us);
        if (us < best_gu_us) best_gu_us = us, best_gu = &i;
      }
      printf(" all");
      for (const Instance& i : kInstances) {
        const bool rows = T > 256;
        if (strcmp(i.kernel, rows ? "down_rows" : "down_sums") || strcmp(i.format, f) || strcmp(i.dtype, "bf16") || i.token_steps != ts) continue;
        if (!rows && all_variants && i.row_tiles != own && !(q.H == 3072 && i.row_tiles == 1)) continue;
        const float us = time(Path{best_gu, &i, rows, panel}, 3);
        printf(" %dx%d:%.1f", i.row_tiles, ts, us);
        if (us < best) best = us;
      }
    }
    printf(" | ratio %.2f\n", best / floor_us);
  }
  for (void* o : owned) CK(cudaFree(o));
}

static void time_all() {
  const size_t pool_bytes = size_t(4300) << 20;
  uint8_t *pool, *work;
  CK(cudaMalloc(&pool, pool_bytes));
  CK(cudaMalloc(&work, size_t(512) << 20));
  const Shape shapes[] = {{"glm-tp4", 8, 160, 6144, 512}, {"qwen-30b", 8, 128, 2048, 768}, {"qwen-235b", 8, 128, 4096, 1536}, {"gpt-oss", 4, 128, 3072, 3072}};
  printf("us a layer; gu: route + gate_up by row tiles x token steps; all: route + gate_up (best) + down\n");
  for (const Shape& s : shapes) time_shape(s, Fmt::nvfp4, 16, {1, 8, 64, 256}, pool, pool_bytes, work, true);
  time_shape(shapes[0], Fmt::mxfp4, 32, {8, 64}, pool, pool_bytes, work, false);
  time_shape(shapes[0], Fmt::int4, 128, {8, 64}, pool, pool_bytes, work, false);
  time_shape(shapes[0], Fmt::int4, 32, {8, 64}, pool, pool_bytes, work, false);
  time_shape(shapes[0], Fmt::nvfp4, 16, {3072}, pool, pool_bytes, work, true);
}
