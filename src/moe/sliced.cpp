// Long batches: the rows of a call cut into calls that the plan serves.
#include <algorithm>

#include "core/check.h"
#include "fourfold/moe.h"
#include "moe/bind.h"

namespace fourfold {
namespace {

/// Rows [first, first + count) of a matrix whose dtype has whole bytes.
template <class View>
View rows_of(View view, std::int64_t first, std::int64_t count) {
  constexpr bool kReadOnly = std::is_const_v<std::remove_pointer_t<decltype(view.data)>>;
  using Byte = std::conditional_t<kReadOnly, const std::byte, std::byte>;
  const std::int64_t row_bytes = view.shape[1] * dtype_bits(view.dtype) / 8;
  view.data = static_cast<Byte*>(view.data) + first * row_bytes;
  view.shape[0] = count;
  return view;
}

/// What bind cannot see in a slice: each tensor with a row per token has `tokens` of them, and is there.
template <class View>
void check_rows(const char* name, const View& view, std::int64_t tokens) {
  check(view.data != nullptr, ErrorCode::usage, "run_sliced: {} has a null data pointer; pass its {} rows", name,
        tokens);
  check(view.rank == 2 && view.shape[0] == tokens, ErrorCode::usage,
        "run_sliced: {} has {} dimensions and {} rows; x has {} rows, and every tensor but expert_map needs as many",
        name, view.rank, view.shape[0], tokens);
}

}  // namespace

std::vector<Binding> bind_sliced(const Plan& plan, Backend& backend, const MoeTensors& tensors,
                                 std::span<std::byte> workspace, Stream stream) {
  const std::int64_t slice = plan.caps().max_tokens;
  const std::int64_t tokens = tensors.x.rank == 2 ? tensors.x.shape[0] : 0;
  std::vector<Binding> bindings;
  if (tokens <= slice || slice == 0) {
    bindings.push_back(fourfold::bind(plan, backend, tensors, workspace, stream));
    return bindings;
  }
  check_rows("x", tensors.x, tokens);
  check_rows("topk_ids", tensors.topk_ids, tokens);
  check_rows("topk_weights", tensors.topk_weights, tokens);
  check_rows("out", tensors.out, tokens);
  // Before offsets are computed; and a slice of out must not meet another slice's inputs either.
  check_whole_call(plan.caps(), tensors, tokens);
  for (std::int64_t first = 0; first < tokens; first += slice) {
    const std::int64_t count = std::min(slice, tokens - first);
    MoeTensors rows = tensors;
    rows.x = rows_of(tensors.x, first, count);
    rows.topk_ids = rows_of(tensors.topk_ids, first, count);
    rows.topk_weights = rows_of(tensors.topk_weights, first, count);
    rows.out = rows_of(tensors.out, first, count);
    bindings.push_back(fourfold::bind(plan, backend, rows, workspace, stream));
  }
  return bindings;
}

void run_sliced(const Plan& plan, Backend& backend, const MoeTensors& tensors, std::span<std::byte> workspace,
                Stream stream) {
  for (const Binding& binding : bind_sliced(plan, backend, tensors, workspace, stream)) run(binding);
}

}  // namespace fourfold
