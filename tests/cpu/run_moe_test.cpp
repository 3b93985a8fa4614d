// The run as a whole, where threads matter: results must not depend on how many share a call.
#include "cpu/run_moe.h"

#include <gtest/gtest.h>

#include <cstring>

#include "fourfold/fourfold.h"
#include "moe/random_call.h"
#include "plan/cpu_plan.h"
#include "plan/plan_data.h"

namespace fourfold {
namespace {

std::vector<std::byte> run_with(int threads, const std::string& isa, const Problem& problem, std::int64_t tokens) {
  Settings settings;
  settings.threads = threads;
  settings.cpu_isa = isa;
  const auto backend = cpu_backend(settings);
  const Plan made = plan(problem.caps, backend->device());
  const RandomExperts experts(problem.caps, 5);
  const auto source = stacked_source(experts.stacked(), problem.caps);
  const ExpertWeights weights = prepare_weights(made, *backend, *source);
  const Workspace workspace = Workspace::allocate(made, *backend);
  std::memset(workspace.span().data(), 0xff, workspace.span().size());
  RandomCall call = random_call(problem.caps, tokens, 9);
  std::vector<std::byte> out(
      static_cast<std::size_t>(tokens * problem.caps.hidden * dtype_bits(problem.caps.activation_dtype) / 8));
  MoeTensors tensors = call.tensors;
  tensors.weights = &weights;
  tensors.out = TensorView(out.data(), problem.caps.activation_dtype, {tokens, problem.caps.hidden});
  fourfold::run(fourfold::bind(made, *backend, tensors, workspace.span()));
  return out;
}

TEST(RunMoe, ThreadCountDoesNotChangeABit) {
  int compared = 0;
  for (const char* text :
       {"t40 k3 e6 h328 i200 nvfp4 bf16 silu bias", "t150 k2 e3 h200 i136 mxfp4 f16 swiglu_oai",
        "t3 k4 e8 h1024 i512 int4 g128 f32 gelu_tanh", "t33 k2 e4 h264 i96 int4 grow zp bf16 relu2 on_input"})
    for (const char* isa : {"portable", "native"}) {
      SCOPED_TRACE(std::string(text) + " " + isa);
      const Problem problem = parse_problem(text);
      const auto one = run_with(1, isa, problem, problem.caps.max_tokens);
      ASSERT_FALSE(one.empty());
      for (const int threads : {2, 3, 5}) {
        EXPECT_EQ(one, run_with(threads, isa, problem, problem.caps.max_tokens)) << threads << " threads";
        ++compared;
      }
    }
  EXPECT_EQ(compared, 24);
}

TEST(RunMoe, SmallCallsUseOneThread) {
  Device device;
  device.threads = 2;
  const Plan demo = plan(parse_problem("t512 k4 e24 h256 i96 nvfp4 bf16 silu").caps, device);
  EXPECT_EQ(cpu_threads(*demo.data(), 1), 1);
  EXPECT_EQ(cpu_threads(*demo.data(), 512), 2);
}

TEST(RunMoe, FlushToZeroOfTheCallerChangesNothing) {
#if defined(__x86_64__)
  const Problem problem = parse_problem("t5 k2 e3 h64 i64 mxfp4 f32 silu");
  const auto plain = run_with(1, "native", problem, 5);
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | 0x8040u);
  const auto flushing = run_with(1, "native", problem, 5);
  __builtin_ia32_ldmxcsr(before);
  EXPECT_EQ(plain, flushing);
#else
  GTEST_SKIP() << "no flush-to-zero mode to set";
#endif
}

}  // namespace
}  // namespace fourfold
