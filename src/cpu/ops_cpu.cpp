// The dense operations on the CPU: chooses the kernels of an instruction set and spreads rows over threads.
#include "cpu/ops_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "cpu/ops_attention.h"
#include "cpu/ops_dense.h"
#include "cpu/ops_kernels.h"

namespace fourfold {

namespace {

using cpu::OpsKernels;
using cpu::PanelWeight;

// Elements of an element-wise operation below which one thread is quicker.
constexpr std::int64_t kParallelElements = 65'536;

const OpsKernels& kernels_of(CpuIsa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case CpuIsa::avx512_bf16:
      return cpu::ops_kernels_avx512_bf16();
    case CpuIsa::avx512:
      return cpu::ops_kernels_avx512();
    case CpuIsa::avx2:
      return cpu::ops_kernels_avx2();
#endif
    default:
      return cpu::ops_kernels_portable();
  }
}

/// The top_k largest of p, the lowest index first among equals. A row of NaN gives the first indices.
void pick_largest(const float* p, std::int64_t experts, std::int64_t top_k, std::int32_t* ids, float* weights) {
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    if (count == top_k && !(p[e] > weights[count - 1])) continue;
    std::int64_t place = count < top_k ? count++ : count - 1;
    for (; place > 0 && p[e] > weights[place - 1]; --place) {
      ids[place] = ids[place - 1];
      weights[place] = weights[place - 1];
    }
    ids[place] = static_cast<std::int32_t>(e);
    weights[place] = p[e];
  }
}

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const Device& device) : kernels_(kernels_of(device.isa)), threads_(std::max(1, device.threads)) {}

  std::unique_ptr<DenseWeight> prepare_dense(ConstTensorView weight, ConstTensorView bias, DType activations) override {
    return std::make_unique<PanelWeight>(weight, bias, activations);
  }
  std::uint64_t matmul_scratch_bytes(std::int64_t k, DType x_dtype) const override {
    return static_cast<std::uint64_t>(cpu::matmul_scratch(kernels_, k, x_dtype == DType::bf16, threads_));
  }
  void matmul(const DenseWeight& weight, const MatmulCall& call) override {
    cpu::matmul(kernels_, static_cast<const PanelWeight&>(weight), call, threads_);
  }
  void gather_rows(const DenseWeight& weight, const std::int32_t* ids, std::int64_t count, float* y) override {
    const auto& panels = static_cast<const PanelWeight&>(weight);
    const std::int64_t width = panels.columns();
    for_rows(count, width, [&](std::int64_t i) { panels.row(ids[i], y + i * width); });
  }

  void rms_norm(const RmsNormCall& c) override {
    const bool y_bf16 = c.y_dtype == DType::bf16, addend_bf16 = c.addend_dtype == DType::bf16;
    for_rows(c.rows, c.width, [&](std::int64_t i) {
      const std::int64_t at = i * c.width;
      const void* addend = c.addend == nullptr ? nullptr : offset(c.addend, at, addend_bf16);
      kernels_.rms_norm({c.x + at, addend, addend_bf16, c.weight, c.eps, c.width, offset(c.y, at, y_bf16), y_bf16});
    });
  }

  std::uint64_t kv_cache_bytes(const KvCacheView& shape) const override {
    return static_cast<std::uint64_t>(cpu::cache_bytes(shape));
  }
  void prepare_qkv(const PrepareQkvCall& call) override { cpu::prepare_qkv(kernels_, call, threads_); }
  std::uint64_t attention_scratch_bytes(const KvCacheView& shape, std::int64_t heads) const override {
    return static_cast<std::uint64_t>(cpu::attention_scratch(shape, heads, threads_));
  }
  void attention(const AttentionCall& call) override { cpu::attention(kernels_, call, threads_); }

  void route_softmax_topk(const RouteCall& c) override {
    const std::int64_t padded = round_up(c.experts, cpu::kPanelRows);
    for_rows(c.tokens, 8 * c.experts, [&](std::int64_t t) {
      float* p = c.scratch + t * padded;
      std::memcpy(p, c.logits + t * c.experts, static_cast<std::size_t>(c.experts) * 4);
      const float factor = 1.0f / kernels_.softmax_f32(p, c.experts, 1.0f);
      for (std::int64_t e = 0; e < c.experts; ++e) p[e] *= factor;
      float* weights = c.weights + t * c.top_k;
      pick_largest(p, c.experts, c.top_k, c.ids + t * c.top_k, weights);
      if (!c.renormalise) return;
      float sum = 0;
      for (std::int64_t j = 0; j < c.top_k; ++j) sum += weights[j];
      for (std::int64_t j = 0; j < c.top_k; ++j) weights[j] /= sum;
    });
  }

  void silu_mul(const float* gate_up, std::int64_t rows, std::int64_t width, void* y, DType y_dtype) override {
    const bool bf16 = y_dtype == DType::bf16;
    for_rows(rows, 4 * width, [&](std::int64_t i) {
      const float* gate = gate_up + 2 * i * width;
      kernels_.silu_mul(gate, gate + width, width, offset(y, i * width, bf16), bf16);
    });
  }
  void gather(const void* x, const std::int32_t* index, std::int64_t count, std::int64_t row_bytes, void* y) override {
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(static_cast<std::byte*>(y) + i * row_bytes,
                  static_cast<const std::byte*>(x) + std::int64_t{index[i]} * row_bytes,
                  static_cast<std::size_t>(row_bytes));
  }
  void scatter_add(const float* y, const std::int32_t* index, const float* factor, std::int64_t count,
                   std::int64_t width, float* out) override {
    for_rows(count, width, [&](std::int64_t i) {
      kernels_.scale_add(y + i * width, factor[i], width, out + std::int64_t{index[i]} * width);
    });
  }

 private:
  template <class Pointer>
  static Pointer offset(Pointer base, std::int64_t elements, bool bf16) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte, std::byte>;
    return static_cast<Byte*>(base) + elements * (bf16 ? 2 : 4);
  }
  template <class Function>
  void for_rows(std::int64_t rows, std::int64_t width, Function function) const {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1 && rows > 1 && rows * width >= kParallelElements) \
    schedule(static)
    for (std::int64_t i = 0; i < rows; ++i) function(i);
  }

  const OpsKernels& kernels_;
  const int threads_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(const Device& device) { return std::make_unique<CpuOps>(device); }

}  // namespace fourfold
