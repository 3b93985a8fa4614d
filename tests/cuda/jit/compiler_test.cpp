// Compiles with fixed options: silent or refused, hermetic, for every architecture, and dumped on request.
#include "cuda/jit/compiler.h"

#include "nvrtc_fixture.h"
#include "scale_kernel.h"

namespace fourfold::cuda {
namespace {

/// Text of the error that compiling `text` as k.cu gives; empty when it compiles.
std::string failure_of(const std::string& text, Report report = Report::silence, const char* architecture = "sm_90a") {
  const std::vector<SourceFile> files = {{"moe/k.cu", text}};
  const SourceTree tree(files);
  KernelSpec spec;
  spec.source = "moe/k.cu";
  try {
    NvrtcCompiler(tree).compile(spec, architecture, report);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return error.what();
  }
  return {};
}

const std::string kWarns = "extern \"C\" __global__ void k() { int unused; }";

struct CompilerTest : NvrtcTest {
  KernelSpec scale;
  void SetUp() override {
    NvrtcTest::SetUp();
    scale.source = "testing/scale.cu";
  }
};

TEST_F(CompilerTest, TheSmallestKernelCompilesForEveryArchitecture) {
  NvrtcCompiler compiler(scale_tree());
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a", "sm_120a"}) {
    const CompiledKernel kernel = compiler.compile(scale, architecture, Report::silence);
    EXPECT_GT(kernel.image.size(), 500u) << architecture;
    EXPECT_EQ(kernel.log, "") << architecture;
  }
}

TEST_F(CompilerTest, TheSameInputsGiveTheSameBytes) {
  NvrtcCompiler compiler(scale_tree());
  EXPECT_EQ(compiler.compile(scale, "sm_90a"), compiler.compile(scale, "sm_90a"));
}

TEST_F(CompilerTest, MacrosReachTheSource) {
  NvrtcCompiler compiler(scale_tree());
  const Image plain = compiler.compile(scale, "sm_90a");
  scale.defines = {{"FACTOR", "3.0f"}};
  EXPECT_NE(compiler.compile(scale, "sm_90a"), plain);
}

TEST_F(CompilerTest, TheTargetHasOptionsArchitectureAndVersion) {
  const KernelTarget target = NvrtcCompiler(scale_tree()).target("sm_90a");
  EXPECT_EQ(target.architecture, "sm_90a");
  EXPECT_EQ(target.options, compile_options());
  EXPECT_EQ(target.compiler_version, "nvrtc " + nvrtc->version());
}

TEST_F(CompilerTest, AnyTextOfTheCompilerIsAnErrorUnlessAllowed) {
  const std::string text = failure_of(kWarns);
  EXPECT_NE(text.find("warning"), std::string::npos) << text;
  EXPECT_NE(text.find("moe/k.cu(1)"), std::string::npos) << text;
  EXPECT_EQ(failure_of(kWarns, Report::anything), "");
}

TEST_F(CompilerTest, AFaultNamesKernelArchitectureAndLine) {
  const std::string text = failure_of("extern \"C\" __global__ void k() { no_such_thing(); }");
  for (const char* part : {"kernel k ", "sm_90a", "moe/k.cu(1)", "no_such_thing"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST_F(CompilerTest, SpillsAreNotSilent) {
  // 200 values that all live across a barrier, in a block of 1024 threads: 64 registers each.
  const std::string text =
      "extern \"C\" __global__ void __launch_bounds__(1024) k(float* x) {\n"
      "  float v[200];\n"
      "  _Pragma(\"unroll\") for (int i = 0; i < 200; ++i) v[i] = x[threadIdx.x + i * 1024];\n"
      "  __syncthreads();\n"
      "  _Pragma(\"unroll\") for (int i = 0; i < 200; ++i) x[threadIdx.x + (199 - i) * 1024] = v[i] * v[(i * 7) % "
      "200];\n"
      "}\n";
  const std::string failure = failure_of(text);
  EXPECT_NE(failure.find("spill"), std::string::npos) << failure;
  const std::vector<SourceFile> files = {{"k.cu", text}};
  const SourceTree tree(files);
  KernelSpec spec;
  spec.source = "k.cu";
  const CompiledKernel kernel = NvrtcCompiler(tree).compile(spec, "sm_90a", Report::resources);
  EXPECT_GT(kernel.resources.spill_bytes, 0);
  EXPECT_LE(kernel.resources.registers, 64);
}

TEST_F(CompilerTest, ResourcesAreReadFromTheReport) {
  const std::vector<SourceFile> files = {
      {"k.cu",
       "extern \"C\" __global__ void k(float* x) { __shared__ float s[32]; s[threadIdx.x] = x[threadIdx.x]; "
       "__syncthreads(); x[threadIdx.x] = s[31 - threadIdx.x]; }"}};
  const SourceTree tree(files);
  KernelSpec spec;
  spec.source = "k.cu";
  const KernelResources resources = NvrtcCompiler(tree).compile(spec, "sm_90a", Report::resources).resources;
  EXPECT_GT(resources.registers, 4);
  EXPECT_LT(resources.registers, 64);
  EXPECT_EQ(resources.spill_bytes, 0);
  EXPECT_GE(resources.shared_bytes, 128);  // some architectures reserve 1 KiB more
}

TEST_F(CompilerTest, NothingIsReadFromTheCurrentFolder) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "moe");
  for (const char* name : {"found.cuh", "moe/found.cuh"}) write_bytes(folder / name, "//\n");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const std::vector<NamedSource> sources = {
      {"moe/k.cu", "#include \"found.cuh\"\nextern \"C\" __global__ void k() {}"}};
  std::vector<std::string> options = compile_options();
  options.emplace_back("--gpu-architecture=sm_80");
  const NvrtcOutput output = nvrtc->compile(sources, options);
  fs::current_path(before);
  EXPECT_EQ(output.result, NvrtcResult::compilation);
  EXPECT_NE(output.log.find("found.cuh"), std::string::npos) << output.log;
}

/// The image of a kernel k.cu whose function f, without an execution space, has this body.
Image image_with(const std::string& body) {
  const std::string text = "inline float f(float a, float b, float c) { return " + body +
                           "; }\nextern \"C\" __global__ void k(float* x) { x[0] = f(x[1], x[2], x[3]); }\n";
  const std::vector<SourceFile> files = {{"k.cu", text}};
  const SourceTree tree(files);
  KernelSpec spec;
  spec.source = "k.cu";
  return NvrtcCompiler(tree).compile(spec, "sm_80");
}

TEST_F(CompilerTest, ProductsAndSumsAreFusedWhereTheSourceSaysSoAndNowhereElse) {
  const Image plain = image_with("a * b + c");
  EXPECT_EQ(plain, image_with("__fadd_rn(__fmul_rn(a, b), c)"));
  EXPECT_NE(plain, image_with("__fmaf_rn(a, b, c)"));
}

TEST_F(CompilerTest, UnknownArchitecturesAreNamedWithTheKnownOnes) {
  const std::string text = failure_of("", Report::silence, "sm_12");
  EXPECT_NE(text.find("sm_12"), std::string::npos) << text;
  EXPECT_NE(text.find("sm_90"), std::string::npos) << text;
}

TEST_F(CompilerTest, DumpHasSourceLogAndImage) {
  const TemporaryFolder folder;
  NvrtcCompiler compiler(scale_tree(), {}, folder / "dump");
  compiler.compile(scale, "sm_90a");
  std::map<std::string, fs::path> by_ending;
  for (const auto& item : fs::directory_iterator(folder / "dump")) by_ending[item.path().extension()] = item.path();
  ASSERT_EQ(by_ending.size(), 3u);
  const std::string source = read_bytes(by_ending[".cu"]);
  const std::string text(source.begin(), source.end());
  EXPECT_NE(text.find("---- testing/scale.cuh ----"), std::string::npos);
  EXPECT_NE(text.find("--gpu-architecture=sm_90a"), std::string::npos);
  EXPECT_GT(fs::file_size(by_ending[".cubin"]), 500u);
  EXPECT_EQ(fs::file_size(by_ending[".log"]), 0u);
}

TEST_F(CompilerTest, ADumpFolderThatCannotBeWrittenIsNoError) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", "x");
  NvrtcCompiler compiler(scale_tree(), {}, folder / "file");
  EXPECT_FALSE(compiler.compile(scale, "sm_90a").empty());
}

TEST(Compiler, ArchitectureNames) {
  EXPECT_EQ(compute_capability("sm_80"), 80);
  EXPECT_EQ(compute_capability("sm_90a"), 90);
  EXPECT_EQ(compute_capability("sm_120f"), 120);
  for (const char* bad : {"", "90", "sm_", "sm_a", "sm_-9", "sm_90b", "sm_90aa", "compute_90", "sm_90 "})
    EXPECT_THROW(compute_capability(bad), Error) << bad;
}

TEST(Compiler, ReportsAreParsed) {
  const KernelResources resources = parse_resource_report(
      "ptxas info    : Function properties for k\nptxas         .     144 bytes stack frame, 136 bytes spill stores, "
      "140 bytes spill loads\nptxas info    : Used 64 registers, used 1 barriers, 144 bytes cumulative stack size, "
      "2176 bytes smem\n");
  EXPECT_EQ(resources.registers, 64);
  EXPECT_EQ(resources.spill_bytes, 276);
  EXPECT_EQ(resources.stack_bytes, 144);
  EXPECT_EQ(resources.shared_bytes, 2176);
  EXPECT_THROW(parse_resource_report("nothing of the kind"), Error);
}

}  // namespace
}  // namespace fourfold::cuda
