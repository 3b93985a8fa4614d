// Bytes of ids.
#include "support/routes.h"

#include <cstring>

namespace support {

using fourfold::DType;
using fourfold::RandomCall;

void set_ids(RandomCall& call, const std::vector<std::int64_t>& ids) {
  const std::size_t width = call.tensors.topk_ids.dtype == DType::i64 ? 8 : 4;
  if (call.topk_ids.size() != ids.size() * width) std::abort();
  for (std::size_t i = 0; i < ids.size(); ++i) std::memcpy(call.topk_ids.data() + i * width, &ids[i], width);
}

std::vector<std::int64_t> get_ids(const RandomCall& call) {
  const bool wide = call.tensors.topk_ids.dtype == DType::i64;
  std::vector<std::int64_t> ids(call.topk_ids.size() / (wide ? 8 : 4));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::int32_t narrow = 0;
    if (wide) std::memcpy(&ids[i], call.topk_ids.data() + i * 8, 8);
    if (wide) continue;
    std::memcpy(&narrow, call.topk_ids.data() + i * 4, 4);
    ids[i] = narrow;
  }
  return ids;
}

RandomCall with_id_width(const RandomCall& call, bool ids_are_64_bit) {
  RandomCall copy = call;
  copy.tensors.x.data = copy.x.data();
  copy.tensors.topk_weights.data = copy.topk_weights.data();
  if (!copy.expert_map.empty()) copy.tensors.expert_map.data = copy.expert_map.data();
  copy.topk_ids.resize(get_ids(call).size() * (ids_are_64_bit ? 8 : 4));
  copy.tensors.topk_ids.data = copy.topk_ids.data();
  copy.tensors.topk_ids.dtype = ids_are_64_bit ? DType::i64 : DType::i32;
  set_ids(copy, get_ids(call));
  return copy;
}

}  // namespace support
