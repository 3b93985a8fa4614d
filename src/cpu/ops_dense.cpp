// Dense weights in panels of sixteen rows, and the split of a matrix product over threads.
#include "cpu/ops_dense.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/check.h"
#include "core/float16.h"

namespace fourfold::cpu {

namespace {

// Tokens of one work item: few enough that 512 tokens spread evenly over threads, enough to pay for the weights' way
// in.
constexpr std::int64_t kBlockTokens = 2 * kTileTokens;
// Elements below which packing is left to one thread: an expert of a small model.
constexpr std::int64_t kParallelPack = 1 << 20;
// Panels of one work item with many tokens: 512 rows of 256 bf16 columns are 256 KiB.
constexpr std::int64_t kBlockPanels = 32;
// Multiplications below which waking a second thread costs more than it saves (about 2 us of one core).
constexpr std::int64_t kParallelProducts = 100'000;

float element(const ConstTensorView& view, std::int64_t index) {
  switch (view.dtype) {
    case DType::bf16:
      return bf16_to_float(view.as<std::uint16_t>()[index]);
    case DType::f16:
      return f16_to_float(view.as<std::uint16_t>()[index]);
    default:
      return view.as<float>()[index];
  }
}

void check_source(const ConstTensorView& view, const char* what, int rank) {
  check(view.dtype == DType::bf16 || view.dtype == DType::f16 || view.dtype == DType::f32, ErrorCode::unsupported,
        "{} has dtype {}, dense layers take BF16, F16 or F32", what, dtype_name(view.dtype));
  check(view.rank == rank && view.data != nullptr, ErrorCode::unsupported, "{} has {} dimensions, {} are expected",
        what, view.rank, rank);
}

}  // namespace

void FreeAligned::operator()(std::byte* data) const noexcept { std::free(data); }

AlignedBytes allocate_aligned(std::int64_t bytes) {
  void* data = std::aligned_alloc(64, static_cast<std::size_t>(round_up(std::max<std::int64_t>(bytes, 1), 64)));
  check(data != nullptr, ErrorCode::unavailable, "no memory for a dense weight of {} bytes", bytes);
  return AlignedBytes(static_cast<std::byte*>(data));
}

PanelWeight::PanelWeight(ConstTensorView weight, ConstTensorView bias, DType activations)
    : rows_(weight.shape[0]),
      columns_(weight.shape[1]),
      is_bf16_(weight.dtype == DType::bf16 || activations == DType::bf16) {
  check_source(weight, "a dense weight", 2);
  check(columns_ % 2 == 0 && columns_ > 0 && rows_ > 0, ErrorCode::unsupported,
        "a dense weight is [{}, {}]: the number of columns must be even, and none may be zero", rows_, columns_);
  const std::int64_t padded = checked_mul(panels(), kPanelRows, "rows of a dense weight");
  data_ = allocate_aligned(
      checked_mul(checked_mul(padded, columns_, "a dense weight"), is_bf16_ ? 2 : 4, "a dense weight"));
  pack(weight);
  if (bias.absent()) return;
  check_source(bias, "a dense bias", 1);
  check(bias.shape[0] == rows_, ErrorCode::unsupported, "a dense bias has {} entries, its weight {} rows",
        bias.shape[0], rows_);
  bias_ = allocate_aligned(checked_mul(rows_, 4, "a dense bias"));
  for (std::int64_t i = 0; i < rows_; ++i) reinterpret_cast<float*>(bias_.get())[i] = element(bias, i);
}

std::uint64_t PanelWeight::bytes() const noexcept {
  return static_cast<std::uint64_t>(panels() * panel_bytes() + (bias_ ? rows_ * 4 : 0));
}

void PanelWeight::pack(ConstTensorView weight) {
#pragma omp parallel for schedule(static) if (rows_ * columns_ >= kParallelPack)
  for (std::int64_t p = 0; p < panels(); ++p) {
    std::byte* panel = data_.get() + p * panel_bytes();
    std::memset(panel, 0, static_cast<std::size_t>(panel_bytes()));
    for (std::int64_t r = 0; r < std::min(kPanelRows, rows_ - p * kPanelRows); ++r) {
      const std::int64_t start = (p * kPanelRows + r) * columns_;
      for (std::int64_t k = 0; k < columns_; ++k) {
        if (!is_bf16_) {
          reinterpret_cast<float*>(panel)[k * kPanelRows + r] = element(weight, start + k);
          continue;
        }
        auto* pairs = reinterpret_cast<std::uint16_t*>(panel);
        pairs[(k / 2 * kPanelRows + r) * 2 + k % 2] = weight.dtype == DType::bf16
                                                          ? weight.as<std::uint16_t>()[start + k]
                                                          : float_to_bf16(element(weight, start + k));
      }
    }
  }
}

void PanelWeight::row(std::int64_t index, float* out) const noexcept {
  const std::byte* from = panel(index / kPanelRows);
  const std::int64_t r = index % kPanelRows;
  for (std::int64_t k = 0; k < columns_; ++k)
    out[k] = is_bf16_
                 ? bf16_to_float(reinterpret_cast<const std::uint16_t*>(from)[(k / 2 * kPanelRows + r) * 2 + k % 2])
                 : reinterpret_cast<const float*>(from)[k * kPanelRows + r];
}

std::int64_t matmul_scratch(const OpsKernels& kernels, std::int64_t k, bool x_is_bf16, int threads) {
  if (!x_is_bf16 || kernels.tile_bf16_bf16 != nullptr) return 0;
  return checked_mul(threads * kBlockTokens * 4, k, "scratch of a dense layer");
}

void matmul(const OpsKernels& kernels, const PanelWeight& weight, const MatmulCall& call, int threads) {
  const std::int64_t k = weight.columns(), n = weight.rows(), panels = weight.panels();
  const bool x_is_bf16 = call.x_dtype == DType::bf16, dot = x_is_bf16 && kernels.tile_bf16_bf16 != nullptr;
  check(weight.is_bf16() || !x_is_bf16, ErrorCode::internal, "bf16 activations meet an fp32 dense weight [{}, {}]", n,
        k);
  const auto kernel = dot ? kernels.tile_bf16_bf16 : weight.is_bf16() ? kernels.tile_bf16_f32 : kernels.tile_f32_f32;
  const bool parallel = threads > 1 && call.m * n * k >= kParallelProducts;
  const std::int64_t token_blocks = ceil_div(call.m, kBlockTokens);
  std::int64_t chunk = kBlockPanels;
  if (!parallel)
    chunk = panels;
  else if (token_blocks * ceil_div(panels, kBlockPanels) < 4 * threads)  // few items: about one or four for each thread
    chunk = round_up(ceil_div(panels * token_blocks, threads * (token_blocks > 1 ? 4 : 1)), 2);
  const std::int64_t chunks = ceil_div(panels, chunk), items = token_blocks * chunks;
#pragma omp parallel for num_threads(threads) if (parallel && items > 1) schedule(dynamic, 1)
  for (std::int64_t item = 0; item < items; ++item) {
    const std::int64_t token = item / chunks * kBlockTokens, panel = item % chunks * chunk;
    TileCall tile;
    tile.w = weight.panel(panel);
    tile.panel_stride = weight.panel_bytes();
    tile.panels = std::min(chunk, panels - panel);
    tile.k = tile.x_stride = k;
    tile.tokens = std::min(kBlockTokens, call.m - token);
    tile.y = call.y + token * n + panel * kPanelRows;
    tile.y_stride = n;
    tile.columns = std::min(tile.panels * kPanelRows, n - panel * kPanelRows);
    tile.bias = weight.bias() == nullptr ? nullptr : weight.bias() + panel * kPanelRows;
    tile.mode = call.add ? TileMode::add : TileMode::store;
    tile.x = static_cast<const std::byte*>(call.x) + token * k * (x_is_bf16 ? 2 : 4);
    if (x_is_bf16 && !dot) {
      float* widened = reinterpret_cast<float*>(call.scratch) + omp_get_thread_num() * kBlockTokens * k;
      kernels.from_bf16(static_cast<const std::uint16_t*>(tile.x), tile.tokens * k, widened);
      tile.x = widened;
    }
    kernel(tile);
  }
}

}  // namespace fourfold::cpu
