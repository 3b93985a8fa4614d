// The keys and values of all layers of one sequence, and how far it has come.
#include "model/kv_cache.h"

#include "core/check.h"

namespace fourfold {

KvCache::KvCache(Backend& backend, Ops& ops, std::int64_t layers, const KvCacheView& shape) : shape_(shape) {
  for (std::int64_t layer = 0; layer < layers; ++layer)
    layers_.push_back(Workspace::allocate(ops.kv_cache_bytes(shape), backend));
}

KvCacheView KvCache::view(std::int64_t layer) const {
  KvCacheView view = shape_;
  view.data = layers_[static_cast<std::size_t>(layer)].span().data();
  return view;
}

void KvCache::advance(std::int64_t tokens) {
  check(tokens >= 0 && position_ + tokens <= shape_.capacity, ErrorCode::internal,
        "{} positions after {} do not fit a cache of {}", tokens, position_, shape_.capacity);
  position_ += tokens;
}

}  // namespace fourfold
