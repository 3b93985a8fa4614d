// The keys and values of all layers of one sequence, and how far it has come.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/ops.h"
#include "fourfold/backend.h"

namespace fourfold {

/// Owns one backend allocation a layer; content is the backend's own. Not thread-safe.
class KvCache {
 public:
  /// `shape.data` is ignored. Allocates. Throws unavailable.
  KvCache(Backend& backend, Ops& ops, std::int64_t layers, const KvCacheView& shape);
  KvCacheView view(std::int64_t layer) const;
  const KvCacheView& shape() const noexcept { return shape_; }
  std::int64_t capacity() const noexcept { return shape_.capacity; }
  /// Tokens held so far: the position of the next one.
  std::int64_t position() const noexcept { return position_; }
  /// The next `tokens` positions were filled. Throws internal past the capacity.
  void advance(std::int64_t tokens);
  void reset() noexcept { position_ = 0; }

 private:
  KvCacheView shape_;
  std::vector<Workspace> layers_;
  std::int64_t position_ = 0;
};

}  // namespace fourfold
