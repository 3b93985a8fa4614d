// One Mixture-of-Experts layer with NVFP4 experts on the CPU: plan, prepare the weights, bind, run.
#include <cstdint>
#include <iostream>
#include <vector>

#include "fourfold/fourfold.h"

int main() {
  using namespace fourfold;
  const auto backend = cpu_backend();
  const Problem problem = parse_problem("t4 k2 e8 h64 i96 nvfp4 f32 silu");
  const Plan layer = plan(problem.caps, backend->device());  // kernels and every byte; allocates nothing
  const RandomExperts experts(problem.caps, /*seed=*/1);     // your own weights, as StackedExperts
  const ExpertWeights weights = prepare_weights(layer, *backend, *stacked_source(experts.stacked(), problem.caps));
  const Workspace workspace = Workspace::allocate(layer, *backend);

  std::vector<float> x(4 * 64, 0.5f), gate(4 * 2, 0.5f), out(4 * 64);  // [tokens, hidden], [tokens, k]
  const std::vector<std::int32_t> ids{0, 1, 2, 3, 4, 5, 6, -1};        // -1: no expert in this slot
  MoeTensors tensors;
  tensors.weights = &weights;
  tensors.x = {x.data(), DType::f32, {4, 64}};
  tensors.topk_ids = {ids.data(), DType::i32, {4, 2}};
  tensors.topk_weights = {gate.data(), DType::f32, {4, 2}};
  tensors.out = {out.data(), DType::f32, {4, 64}};
  run(fourfold::bind(layer, *backend, tensors, workspace.span()));  // qualified: std::bind is a candidate too
  std::cout << layer.workspace_bytes() << " workspace bytes, out[0][0] = " << out[0] << "\n";
}
