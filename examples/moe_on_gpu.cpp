// The same layer on an NVIDIA GPU: kernels resolved before the first call, then frozen; nothing is loaded by a call.
#include <cstdint>
#include <iostream>
#include <span>
#include <vector>

#include "fourfold/fourfold.h"

namespace {

using namespace fourfold;

/// Memory of the GPU with the bytes of `host`.
template <class Element>
Workspace on_device(Backend& backend, const std::vector<Element>& host) {
  Workspace memory = Workspace::allocate(host.size() * sizeof(Element), backend);
  copy_to_device(backend, memory.span(), std::as_bytes(std::span(host)));
  return memory;
}

void run_layer() {
  const auto backend = cuda_backend(0);
  const Problem problem = parse_problem("t4 k2 e8 h64 i96 nvfp4 bf16 silu");
  const Plan layer = plan(problem.caps, backend->device());
  const RandomExperts experts(problem.caps, /*seed=*/1);
  const ExpertWeights weights = prepare_weights(layer, *backend, *stacked_source(experts.stacked(), problem.caps));
  const Workspace workspace = Workspace::allocate(layer, *backend);
  warm_up(layer, *backend);  // from now on no call compiles or loads anything,
  freeze(*backend);          // and one that would have to is an error

  constexpr std::uint16_t kHalf = 0x3f00;  // 0.5 in bf16
  std::vector<std::uint16_t> out(4 * 64);
  const Workspace x = on_device(*backend, std::vector<std::uint16_t>(4 * 64, kHalf));
  const Workspace ids = on_device(*backend, std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, -1});
  const Workspace gate = on_device(*backend, std::vector<float>(4 * 2, 0.5f));
  const Workspace result = Workspace::allocate(out.size() * 2, *backend);
  MoeTensors tensors;
  tensors.weights = &weights;
  tensors.x = {x.span().data(), DType::bf16, {4, 64}};
  tensors.topk_ids = {ids.span().data(), DType::i32, {4, 2}};
  tensors.topk_weights = {gate.span().data(), DType::f32, {4, 2}};
  tensors.out = {result.span().data(), DType::bf16, {4, 64}};

  const Stream stream = own_stream(*backend);  // or a stream of your own, captured or not
  run(fourfold::bind(layer, *backend, tensors, workspace.span(), stream));
  synchronize(*backend, stream);
  copy_to_host(*backend, std::as_writable_bytes(std::span(out)), result.span());
  std::cout << layer.workspace_bytes() << " workspace bytes, out[0][0] = 0x" << std::hex << out[0] << "\n";
}

}  // namespace

int main() {
  try {
    run_layer();
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return error.exit_code();
  }
}
