// The key/value cache of the CPU and causal attention over it.
#pragma once

#include <cstdint>

#include "backend/ops.h"
#include "cpu/ops_kernels.h"

namespace fourfold::cpu {

/// Bytes of one layer's cache: keys [kv_heads][capacity / 16] panels of 16 positions over head_dim, then values
/// [kv_heads][head_dim / 16] panels of 16 dims over positions. So scores and the weighted sum are both plain tiles.
std::int64_t cache_bytes(const KvCacheView& shape);
void prepare_qkv(const OpsKernels& kernels, const PrepareQkvCall& call, int threads);
std::int64_t attention_scratch(const KvCacheView& shape, std::int64_t heads, int threads);
/// Scores, softmax and weighted sum per block of query rows; each row's sums run over its positions in order.
void attention(const OpsKernels& kernels, const AttentionCall& call, int threads);

}  // namespace fourfold::cpu
