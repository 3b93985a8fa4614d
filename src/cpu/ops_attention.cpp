// The key/value cache of the CPU and causal attention over it.
#include "cpu/ops_attention.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace fourfold::cpu {

namespace {

constexpr std::int64_t kLargestHead = 1024;         // dims of a head that fit the stack while they are rounded
constexpr std::int64_t kParallelProducts = 60'000;  // as in ops_dense.cpp, with some exponentials

/// Sizes and places inside one layer's cache, in elements.
struct CacheLayout {
  explicit CacheLayout(const KvCacheView& view)
      : head_dim(view.head_dim),
        capacity(round_up(view.capacity, kPanelRows)),
        dims(round_up(view.head_dim, kPanelRows)),
        element(view.dtype == DType::bf16 ? 2 : 4),
        keys_per_head(capacity * head_dim),
        values_per_head(dims * capacity),
        values_start(view.kv_heads * keys_per_head) {}
  std::int64_t head_dim, capacity, dims, element, keys_per_head, values_per_head, values_start;

  /// Index of the first entry of panel `panel` at step `k` of `steps`; the next row is `stride()` further.
  std::int64_t step_of(std::int64_t panel, std::int64_t steps, std::int64_t k) const {
    const std::int64_t base = panel * steps * kPanelRows;
    return element == 2 ? base + k / 2 * 2 * kPanelRows + k % 2 : base + k * kPanelRows;
  }
  std::int64_t stride() const { return element == 2 ? 2 : 1; }
};

/// One position of one head. Element is what the cache holds: keys go along the steps of their panel, values along
/// rows.
template <class Element>
void append_head(const CacheLayout& layout, Element* cache, std::int64_t head, std::int64_t position,
                 const Element* key, const Element* value) {
  Element* keys = cache + head * layout.keys_per_head + layout.step_of(position / kPanelRows, layout.head_dim, 0) +
                  position % kPanelRows * layout.stride();
  for (std::int64_t d = 0; d + 1 < layout.head_dim; d += 2) {  // a pair of dims is one step of bf16, two of fp32
    keys[d * kPanelRows] = key[d];
    keys[d * kPanelRows + (layout.element == 2 ? 1 : kPanelRows)] = key[d + 1];
  }
  Element* values = cache + layout.values_start + head * layout.values_per_head;
  for (std::int64_t d = 0; d < layout.head_dim; d += kPanelRows) {
    Element* panel = values + layout.step_of(d / kPanelRows, layout.capacity, position);
    for (std::int64_t r = 0; r < std::min(kPanelRows, layout.head_dim - d); ++r)
      panel[r * layout.stride()] = value[d + r];
  }
}

void append(const OpsKernels& kernels, const CacheLayout& layout, const KvCacheView& cache, std::int64_t position,
            const float* keys, const float* values) {
  std::uint16_t key[kLargestHead], value[kLargestHead];
  for (std::int64_t h = 0; h < cache.kv_heads; ++h) {
    const float* k = keys + h * cache.head_dim;
    const float* v = values + h * cache.head_dim;
    if (layout.element == 4) {
      append_head(layout, reinterpret_cast<float*>(cache.data), h, position, k, v);
      continue;
    }
    kernels.to_bf16(k, cache.head_dim, key);
    kernels.to_bf16(v, cache.head_dim, value);
    append_head(layout, reinterpret_cast<std::uint16_t*>(cache.data), h, position, key, value);
  }
}

/// Tokens whose query heads of one key head fill a tile.
std::int64_t block_tokens(std::int64_t group) { return std::max<std::int64_t>(1, kTileTokens / group); }

/// One thread's scratch: queries, weighted sums, totals of the exponentials, scores.
struct BlockScratch {
  BlockScratch(const CacheLayout& layout, std::int64_t rows)
      : sums(round_up(checked_mul(rows, layout.head_dim * 4, kWhat), 64)),
        totals(sums + checked_mul(rows, layout.dims * 4, kWhat)),
        scores(totals + round_up(rows * 4, 64)),
        bytes(scores + checked_mul(rows, layout.capacity * 4, kWhat)) {}
  static constexpr const char* kWhat = "scratch of attention";
  std::int64_t sums, totals, scores, bytes;  // offsets, queries at 0
};

/// Attention of the query heads that share one key head, for a block of tokens.
class Block {
 public:
  Block(const OpsKernels& kernels, const AttentionCall& call, const CacheLayout& layout, const BlockScratch& places,
        std::byte* scratch)
      : kernels_(kernels),
        call_(call),
        layout_(layout),
        group_(call.heads / call.cache.kv_heads),
        bf16_(call.cache.dtype == DType::bf16),
        dot_(bf16_ && kernels.tile_bf16_bf16 != nullptr),
        queries_(scratch),
        sums_(reinterpret_cast<float*>(scratch + places.sums)),
        totals_(reinterpret_cast<float*>(scratch + places.totals)),
        scores_(reinterpret_cast<float*>(scratch + places.scores)) {}

  void run(std::int64_t head, std::int64_t first, std::int64_t count) {
    load_queries(head, first, count);
    score(head, first, count);
    for (std::int64_t r = 0; r < count * group_; ++r) {
      float* row = scores_ + r * layout_.capacity;
      const std::int64_t n = call_.past + first + r / group_ + 1;
      totals_[r] = dot_ ? kernels_.softmax_bf16(row, n, call_.scale) : kernels_.softmax_f32(row, n, call_.scale);
    }
    weigh_values(head, first, count);
    store(head, first, count);
  }

 private:
  void load_queries(std::int64_t head, std::int64_t first, std::int64_t count) {
    const std::int64_t row = call_.heads + 2 * call_.cache.kv_heads, width = group_ * layout_.head_dim;
    for (std::int64_t t = 0; t < count; ++t) {
      const float* q = call_.qkv + ((first + t) * row + head * group_) * layout_.head_dim;
      if (dot_)
        kernels_.to_bf16(q, width, reinterpret_cast<std::uint16_t*>(queries_) + t * width);
      else
        std::memcpy(reinterpret_cast<float*>(queries_) + t * width, q, static_cast<std::size_t>(width) * 4);
    }
  }

  /// scores = q k^T for every position that the block's last token sees; a row uses its own first positions.
  void score(std::int64_t head, std::int64_t first, std::int64_t count) {
    TileCall tile;
    tile.w = call_.cache.data + head * layout_.keys_per_head * layout_.element;
    tile.panel_stride = layout_.head_dim * kPanelRows * layout_.element;
    tile.panels = ceil_div(call_.past + first + count, kPanelRows);
    tile.k = tile.x_stride = layout_.head_dim;
    tile.x = queries_;
    tile.tokens = count * group_;
    tile.y = scores_;
    tile.y_stride = layout_.capacity;
    tile.columns = tile.panels * kPanelRows;
    launch(tile);
  }

  /// sums = p v: together over the positions that the block's first token sees, then each token over the rest of its
  /// own, so that no row ever meets a later position's value. Pieces end at even positions, as the pairs do.
  void weigh_values(std::int64_t head, std::int64_t first, std::int64_t count) {
    const std::int64_t common = (call_.past + first + 1) / 2 * 2;
    TileCall tile;
    tile.w = call_.cache.data + (layout_.values_start + head * layout_.values_per_head) * layout_.element;
    tile.panel_stride = layout_.capacity * kPanelRows * layout_.element;
    tile.panels = layout_.dims / kPanelRows;
    tile.k = common;
    tile.x = scores_;
    tile.x_stride = layout_.capacity * (dot_ ? 2 : 1);  // bf16 exponentials lie at the front of fp32 rows
    tile.tokens = count * group_;
    tile.y = sums_;
    tile.y_stride = tile.columns = layout_.dims;
    launch(tile);
    tile.w += common * kPanelRows * layout_.element;
    tile.tokens = group_;
    tile.mode = TileMode::resume;
    for (std::int64_t t = 0; t < count; ++t) {
      tile.k = call_.past + first + t + 1 - common;
      tile.x = reinterpret_cast<const std::byte*>(scores_ + t * group_ * layout_.capacity) + common * (dot_ ? 2 : 4);
      tile.y = sums_ + t * group_ * layout_.dims;
      if (tile.k > 0) launch(tile);
    }
  }

  void store(std::int64_t head, std::int64_t first, std::int64_t count) {
    for (std::int64_t r = 0; r < count * group_; ++r) {
      const std::int64_t to = ((first + r / group_) * call_.heads + head * group_ + r % group_) * layout_.head_dim;
      kernels_.scale(sums_ + r * layout_.dims, 1.0f / totals_[r], layout_.head_dim,
                     static_cast<std::byte*>(call_.out) + to * layout_.element, bf16_);
    }
  }

  void launch(const TileCall& tile) const {
    (dot_ ? kernels_.tile_bf16_bf16 : bf16_ ? kernels_.tile_bf16_f32 : kernels_.tile_f32_f32)(tile);
  }

  const OpsKernels& kernels_;
  const AttentionCall& call_;
  const CacheLayout& layout_;
  std::int64_t group_;  // query heads for one key head; rows are [token][head of the group]
  bool bf16_, dot_;     // cache and output are bf16; queries and exponentials too
  std::byte* queries_;  // [rows, head_dim] fp32 or bf16
  float* sums_;         // [rows, dims]
  float* totals_;       // [rows]
  float* scores_;       // [rows, capacity]
};

}  // namespace

std::int64_t cache_bytes(const KvCacheView& shape) {
  const char* what = "the key/value cache";
  check(shape.head_dim >= 2 && shape.head_dim <= kLargestHead && shape.head_dim % 2 == 0, ErrorCode::unsupported,
        "head_dim {} is not an even number of 2 .. {}", shape.head_dim, kLargestHead);
  const std::int64_t positions = round_up(checked_add(shape.capacity, kPanelRows, what), kPanelRows);
  const std::int64_t width = checked_mul(2 * shape.kv_heads, round_up(shape.head_dim, kPanelRows), what);
  checked_mul(checked_mul(positions, width, what), 4, what);
  const CacheLayout layout(shape);
  return (layout.values_start + shape.kv_heads * layout.values_per_head) * layout.element;
}

void prepare_qkv(const OpsKernels& kernels, const PrepareQkvCall& call, int threads) {
  const CacheLayout layout(call.cache);
  const std::int64_t head_dim = layout.head_dim, row = (call.heads + 2 * call.cache.kv_heads) * head_dim;
#pragma omp parallel for num_threads(threads) if (call.tokens >= 16 && threads > 1) schedule(static)
  for (std::int64_t t = 0; t < call.tokens; ++t) {
    const std::int64_t position = call.past + t;
    HeadCall head;
    head.head_dim = head_dim;
    head.eps = call.eps;
    head.half_dim = call.rope.half_dim;
    head.cosine = call.rope.cosine + position * head.half_dim;
    head.sine = call.rope.sine + position * head.half_dim;
    float* q = call.qkv + t * row;
    for (std::int64_t h = 0; h < call.heads + call.cache.kv_heads; ++h) {
      head.x = q + h * head_dim;
      head.weight = h < call.heads ? call.q_norm : call.k_norm;
      kernels.head(head);
    }
    const float* k = q + call.heads * head_dim;
    append(kernels, layout, call.cache, position, k, k + call.cache.kv_heads * head_dim);
  }
}

std::int64_t attention_scratch(const KvCacheView& shape, std::int64_t heads, int threads) {
  const std::int64_t group = heads / shape.kv_heads;
  const BlockScratch places(CacheLayout(shape), block_tokens(group) * group);
  return checked_mul(round_up(places.bytes, 64), threads, "scratch of attention");
}

void attention(const OpsKernels& kernels, const AttentionCall& call, int threads) {
  const CacheLayout layout(call.cache);
  const std::int64_t group = call.heads / call.cache.kv_heads, tokens_of_block = block_tokens(group);
  const BlockScratch places(layout, tokens_of_block * group);
  const std::int64_t blocks = ceil_div(call.tokens, tokens_of_block), items = blocks * call.cache.kv_heads;
  const std::int64_t products = call.tokens * (call.past + call.tokens) * call.heads * layout.head_dim;
#pragma omp parallel for num_threads(threads) if (threads > 1 && products >= kParallelProducts) schedule(dynamic, 1)
  for (std::int64_t item = 0; item < items; ++item) {
    // the last blocks see the most positions: they go first
    const std::int64_t first = (blocks - 1 - item / call.cache.kv_heads) * tokens_of_block;
    std::byte* scratch = call.scratch + omp_get_thread_num() * round_up(places.bytes, 64);
    Block block(kernels, call, layout, places, scratch);
    block.run(item % call.cache.kv_heads, first, std::min(tokens_of_block, call.tokens - first));
  }
}

}  // namespace fourfold::cpu
