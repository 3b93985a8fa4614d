// Every kernel instance that a plan of the corpus can name compiles for every architecture, without a word from the
// compiler, within the registers and shared memory that the plan assumed. No GPU is needed.
#include <map>

#include "corpus/corpus.h"
#include "fourfold/plan.h"
#include "nvrtc_fixture.h"
#include "plan/plan_data.h"

namespace fourfold::cuda {
namespace {

constexpr std::size_t kMaxInstances = 250;
constexpr std::size_t kMaxPackBytes = 16u << 20;

/// By name; the corpus names each instance many times.
std::map<std::string, KernelSpec> corpus_kernels(const std::string& architecture) {
  Device device = device_preset("h200");
  device.arch = architecture;
  std::map<std::string, KernelSpec> kernels;
  for (const std::string& problem : support::corpus_problems()) {
    const Plan planned = plan(parse_problem(problem).caps, device);
    for (const KernelSpec& spec : planned.data()->kernel_specs) kernels.emplace(spec.name(), spec);
  }
  return kernels;
}

struct CorpusCompile : NvrtcTest, testing::WithParamInterface<const char*> {};

TEST_P(CorpusCompile, EveryInstanceIsSilentAndKeepsItsSpec) {
  const auto kernels = corpus_kernels(GetParam());
  EXPECT_GE(kernels.size(), 50u);
  EXPECT_LE(kernels.size(), kMaxInstances);
  NvrtcCompiler compiler(SourceTree::embedded());
  std::size_t bytes = 0;
  for (const auto& [name, spec] : kernels) {
    const CompiledKernel compiled = compiler.compile(spec, GetParam(), Report::resources);
    EXPECT_GT(compiled.resources.registers, 0) << name;
    EXPECT_LE(compiled.resources.registers, spec.max_registers) << name;
    EXPECT_EQ(compiled.resources.spill_bytes, 0) << name;
    EXPECT_LE(compiled.resources.shared_bytes, spec.shared_bytes) << name;
    bytes += compiler.compile(spec, GetParam()).size();  // as a pack does it; throws on any text
  }
  EXPECT_GT(bytes, 0u);
  EXPECT_LE(bytes, kMaxPackBytes);
}
INSTANTIATE_TEST_SUITE_P(Architectures, CorpusCompile, testing::Values("sm_80", "sm_90a", "sm_100a", "sm_120a"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace fourfold::cuda
