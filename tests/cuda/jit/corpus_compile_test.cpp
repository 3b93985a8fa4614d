// Every kernel instance that a plan can name compiles for every architecture, without a word from the compiler, within
// the registers and shared memory that the plan assumed. No GPU is needed. That the catalog has every kernel of the
// corpus is tests/plan/kernel_catalog_test.cpp's to show.
#include "fourfold/kernels.h"
#include "nvrtc_fixture.h"
#include "plan/kernel_catalog.h"

namespace fourfold::cuda {
namespace {

constexpr std::size_t kMaxInstances = 250;
constexpr std::size_t kMaxPackBytes = 16u << 20;

struct CorpusCompile : NvrtcTest, testing::WithParamInterface<std::string> {};

TEST_P(CorpusCompile, EveryInstanceIsSilentAndKeepsItsSpec) {
  const std::vector<KernelSpec> kernels = kernel_catalog(GetParam());
  EXPECT_GE(kernels.size(), 50u);
  EXPECT_LE(kernels.size(), kMaxInstances);
  NvrtcCompiler compiler(SourceTree::embedded());
  std::size_t bytes = 0;
  for (const KernelSpec& spec : kernels) {
    const std::string name = spec.name();
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
INSTANTIATE_TEST_SUITE_P(Architectures, CorpusCompile, testing::ValuesIn(kernel_architectures()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace fourfold::cuda
