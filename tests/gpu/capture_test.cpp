// What is allowed and what is refused while a stream is captured.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "core/dynamic_library.h"
#include "cuda/capture_guard.h"
#include "gpu/gpu_call.h"
#include "gpu/gpu_device.h"
#include "plan/plan_data.h"
#include "support/temporary_folder.h"

namespace fourfold::gpu_test {
namespace {

using cuda::CaptureMode;
using cuda::CaptureState;

/// A layer with inputs and its right output, computed by the shared backend.
struct Known {
  Known() : experts(caps, 1), inputs(random_call(caps, 12, 2)) {
    const GpuLayer layer(gpu(), caps, experts.stacked());
    eager = GpuCall(layer, inputs.tensors).run();
    const PlanData& data = *layer.plan().data();
    kernels = data.kernel_specs.size();
    const auto band = static_cast<std::size_t>(&layer.plan().band_for(12) - data.bands.data());
    launches = data.cuda_bands[band].launches.size();
  }
  Caps caps = support::caps_of("t12 k3 e6 h136 i72 nvfp4 bf16 silu");
  RandomExperts experts;
  RandomCall inputs;
  Bytes eager;
  std::size_t kernels = 0;   // that the plan can launch
  std::size_t launches = 0;  // of one run
};

/// The text of the usage error that `work` must throw.
std::string usage_error(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

CaptureState state_of(const cuda::Stream& stream) {
  return cuda::capture_state(*counting_driver(), stream.context()->ordinal(), stream.value());
}

/// Nothing was looked for, compiled or loaded.
void expect_no_work(const KernelCounters& counters) {
  EXPECT_EQ(counters.from_pack, 0u);
  EXPECT_EQ(counters.from_disk, 0u);
  EXPECT_EQ(counters.compiled, 0u);
  EXPECT_EQ(counters.loaded, 0u);
}

// BL-03.
TEST(Capture, ABindWithColdKernelsIsRefusedBeforeAnyWork) {
  const Known known;
  const std::shared_ptr<Backend> cold = new_backend();
  const GpuLayer layer(*cold, known.caps, known.experts.stacked(), true);
  const GpuCall call(layer, known.inputs.tensors);
  const cuda::Stream stream = cuda::Stream::create(context());
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::thread_local_mode, CaptureMode::relaxed}) {
    cuda::ScopedCapture capture(context(), stream.value(), mode);
    const std::string text = usage_error([&] { call.bind({stream.value()}); });
    EXPECT_NE(text.find(layer.plan().kernels().front()), std::string::npos) << text;
    EXPECT_NE(text.find("12 tokens"), std::string::npos) << text;
    EXPECT_NE(text.find("warm_up"), std::string::npos) << text;
    EXPECT_EQ(state_of(stream), CaptureState::active);
    EXPECT_EQ(capture.end().node_count(), 0u);
  }
  expect_no_work(kernel_counters(*cold));
  EXPECT_EQ(kernel_counters(*cold).refusals, 3u);
  fourfold::run(call.bind({stream.value()}));  // the stream is usable, and not captured any more: this loads
  stream.synchronize();
  EXPECT_EQ(call.out(), known.eager);
  EXPECT_EQ(kernel_counters(*cold).loaded, known.kernels);
  EXPECT_EQ(replay(record(call, stream, CaptureMode::global), call, stream), known.eager);
}

TEST(Capture, AFrozenMissIsAnErrorAlsoWithAWarmDiskCache) {
  const Compiler compiler = find_compiler();
  if (!compiler.reason.empty()) GTEST_SKIP() << "no compiler to fill a disk cache: " << compiler.reason;
  const Known known;
  const support::TemporaryFolder owner;
  const std::string folder = owner.string();
  Settings settings = settings_from_environment();
  settings.cache_dir = folder;
  settings.kernel_dir = folder;  // no pack is there
  settings.no_disk_cache = false;
  const Plan layer_plan = plan(known.caps, gpu().device());
  const std::shared_ptr<Backend> first = new_backend(0, settings);
  warm_up(layer_plan, *first);
  EXPECT_EQ(kernel_counters(*first).compiled, known.kernels);

  const std::shared_ptr<Backend> frozen = new_backend(0, settings);
  const GpuLayer layer(*frozen, known.caps, known.experts.stacked(), true);
  const GpuCall call(layer, known.inputs.tensors);
  freeze(*frozen);
  EXPECT_NE(usage_error([&] { call.bind(own_stream(*frozen)); }).find("frozen"), std::string::npos);
  EXPECT_NE(usage_error([&] { warm_up(layer_plan, *frozen); }).find("frozen"), std::string::npos);
  expect_no_work(kernel_counters(*frozen));
  EXPECT_EQ(kernel_counters(*frozen).refusals, 2u);

  const std::shared_ptr<Backend> warm = new_backend(0, settings);
  warm_up(layer_plan, *warm);
  EXPECT_EQ(kernel_counters(*warm).from_disk, known.kernels);
  EXPECT_EQ(kernel_counters(*warm).compiled, 0u);
}

TEST(Capture, AFrozenWarmBackendRunsAndIsCaptured) {
  const Known known;
  const std::shared_ptr<Backend> backend = new_backend();
  const GpuLayer layer(*backend, known.caps, known.experts.stacked());
  const GpuCall call(layer, known.inputs.tensors);
  freeze(*backend);
  const KernelCounters before = kernel_counters(*backend);
  EXPECT_EQ(call.run(), known.eager);
  const cuda::Stream stream = cuda::Stream::create(context());
  EXPECT_EQ(replay(record(call, stream, CaptureMode::global), call, stream), known.eager);
  const KernelCounters after = kernel_counters(*backend);
  EXPECT_EQ(after.loaded, before.loaded);
  EXPECT_EQ(after.compiled, before.compiled);
  EXPECT_EQ(after.refusals, 0u);
}

// The driver itself invalidates a capture in global mode on an allocation, a load or a wait of any thread.
TEST(Capture, InEveryModeItStaysValidAndHoldsTheLaunchesOfThePlan) {
  const Known known;
  const GpuLayer layer(gpu(), known.caps, known.experts.stacked());
  const GpuCall call(layer, known.inputs.tensors);
  const cuda::Stream stream = cuda::Stream::create(context());
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::thread_local_mode, CaptureMode::relaxed}) {
    const Recording recording = record(call, stream, mode);
    EXPECT_EQ(recording.graph.node_count(), known.launches);
    EXPECT_EQ(replay(recording, call, stream), known.eager) << static_cast<int>(mode);
  }
}

// The state that counts is that of the stream which was passed in: loading for another one is legal.
TEST(Capture, ABindForAnotherStreamMayLoad) {
  const Known known;
  const std::shared_ptr<Backend> cold = new_backend();
  const GpuLayer layer(*cold, known.caps, known.experts.stacked(), true);
  const GuardedMemory second_workspace(*cold, layer.plan().workspace_bytes());
  const GpuCall call(layer, known.inputs.tensors), other_call(layer, known.inputs.tensors, second_workspace);
  const cuda::Stream captured = cuda::Stream::create(context()), other = cuda::Stream::create(context());
  cuda::ScopedCapture capture(context(), captured.value(), CaptureMode::thread_local_mode);
  usage_error([&] { call.bind({captured.value()}); });
  {
    const DeliberateCalls loads_for_the_other_stream;
    fourfold::run(other_call.bind({other.value()}));
  }
  EXPECT_EQ(state_of(captured), CaptureState::active);
  fourfold::run(call.bind({captured.value()}));  // warm by now
  const cuda::Graph graph = capture.end();
  EXPECT_EQ(graph.node_count(), known.launches);
  other.synchronize();
  EXPECT_EQ(other_call.out(), known.eager);
  const Recording recording{{}, graph.instantiate()};
  EXPECT_EQ(replay(recording, call, captured), known.eager);
}

TEST(Capture, OnDevice1WhileDevice0IsCurrent) {
  if (gpu_count() < 2) GTEST_SKIP() << "this machine has one GPU";
  const Known known;
  const std::shared_ptr<Backend> second = new_backend(1);
  const GpuLayer layer(*second, known.caps, known.experts.stacked());
  const GpuCall call(layer, known.inputs.tensors);
  const cuda::Stream stream = cuda::Stream::create(context(1));
  const cuda::ContextRef first = context(0);
  const cuda::ContextGuard current(*first);
  EXPECT_EQ(call.run(), known.eager);
  const std::shared_ptr<Backend> cold = new_backend(1);
  const GpuLayer cold_layer(*cold, known.caps, known.experts.stacked(), true);
  const GpuCall cold_call(cold_layer, known.inputs.tensors);
  {
    const cuda::ScopedCapture capture(context(1), stream.value(), CaptureMode::thread_local_mode);
    usage_error([&] { cold_call.bind({stream.value()}); });
  }
  EXPECT_EQ(replay(record(call, stream, CaptureMode::global), call, stream), known.eager);
  cuda::CUcontext now = nullptr;
  counting_driver()->call(counting_driver()->ctx_get_current, 0, &now);
  EXPECT_EQ(now, first->handle());
}

TEST(Capture, AnInvalidatedOneRefusesAndEndsAndTheStreamLives) {
  const Known known;
  const GpuLayer layer(gpu(), known.caps, known.experts.stacked());
  const GpuCall call(layer, known.inputs.tensors);
  const std::shared_ptr<Backend> cold = new_backend();
  const GpuLayer cold_layer(*cold, known.caps, known.experts.stacked(), true);
  const GpuCall cold_call(cold_layer, known.inputs.tensors);
  const cuda::Stream stream = cuda::Stream::create(context());
  {
    cuda::ScopedCapture capture(context(), stream.value(), CaptureMode::thread_local_mode);
    {
      const DeliberateCalls invalidates;
      EXPECT_THROW(stream.synchronize(), Error);
    }
    ASSERT_EQ(state_of(stream), CaptureState::invalidated);
    const std::string text = usage_error([&] { cold_call.bind({stream.value()}); });
    EXPECT_NE(text.find("invalidated"), std::string::npos) << text;
    EXPECT_THROW(fourfold::run(call.bind({stream.value()})), Error);
    usage_error([&] { capture.end(); });
  }
  expect_no_work(kernel_counters(*cold));
  EXPECT_EQ(state_of(stream), CaptureState::none);
  EXPECT_EQ(replay(record(call, stream, CaptureMode::global), call, stream), known.eager);
  EXPECT_EQ(call.run(), known.eager);
}

// Loading, allocating, packing and copying by one thread while another one captures in the strictest mode.
TEST(Capture, WarmUpWhileAnotherThreadCaptures) {
  const Known known;
  const GpuLayer layer(gpu(), known.caps, known.experts.stacked());
  const GpuCall call(layer, known.inputs.tensors);
  const cuda::Stream stream = cuda::Stream::create(context());
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::thread_local_mode, CaptureMode::relaxed}) {
    cuda::ScopedCapture capture(context(), stream.value(), mode);
    Bytes other_result;
    std::uint64_t loaded = 0;
    int mode_after = -1;
    std::string failure;
    std::thread other([&] {
      try {
        const std::shared_ptr<Backend> backend = new_backend();
        const GpuLayer other_layer(*backend, known.caps, known.experts.stacked());  // packs, warms up
        other_result = GpuCall(other_layer, known.inputs.tensors).run();
        loaded = kernel_counters(*backend).loaded;
        mode_after = static_cast<int>(CaptureMode::global);
        counting_driver()->call(counting_driver()->thread_exchange_capture_mode, -1, &mode_after);
      } catch (const std::exception& error) {
        failure = error.what();
      }
    });
    other.join();
    EXPECT_EQ(failure, "") << static_cast<int>(mode);
    EXPECT_EQ(loaded, known.kernels);
    EXPECT_EQ(mode_after, static_cast<int>(CaptureMode::global)) << "a thread starts in global mode";
    EXPECT_EQ(other_result, known.eager);
    ASSERT_EQ(state_of(stream), CaptureState::active) << static_cast<int>(mode);
    fourfold::run(call.bind({stream.value()}));
    const Recording recording{{}, capture.end().instantiate()};
    EXPECT_EQ(replay(recording, call, stream), known.eager);
  }
}

/// Kinds of the graph's nodes, by cuGraphNodeGetType; empty where the driver's answer cannot be had.
std::vector<int> node_types(const cuda::Graph& graph) {
  const DynamicLibrary library = DynamicLibrary::open(std::array{std::string(cuda::kDriverLibrary)});
  const auto get_type =
      reinterpret_cast<cuda::CUresult (*)(cuda::CUgraphNode, int*)>(library.find_symbol("cuGraphNodeGetType"));
  std::size_t count = graph.node_count();
  std::vector<cuda::CUgraphNode> nodes(count);
  counting_driver()->call(counting_driver()->graph_get_nodes, 0, graph.value(), nodes.data(), &count);
  std::vector<int> types;
  for (const cuda::CUgraphNode node : nodes)
    if (int type = -1; get_type != nullptr && get_type(node, &type) == cuda::kSuccess) types.push_back(type);
  return types;
}

// A run records launches and nothing else: no copy, fill or host call, so no pointer into the host's memory that
// somebody would have to keep. Parameters are copied at the launch: binding, plan and tensors may go.
TEST(Capture, AGraphHoldsNoPointerOfTheHost) {
  const Known known;
  auto layer = std::make_unique<GpuLayer>(gpu(), known.caps, known.experts.stacked());
  const cuda::Stream stream = cuda::Stream::create(context());
  const GpuCall call(*layer, known.inputs.tensors);
  Recording recording;
  {
    auto binding = std::make_optional(call.bind({stream.value()}));
    cuda::ScopedCapture capture(context(), stream.value(), CaptureMode::global);
    fourfold::run(*binding);
    binding.reset();
    recording.graph = capture.end();
    recording.exec = recording.graph.instantiate();
  }
  constexpr int kKernelNode = 0;  // CU_GRAPH_NODE_TYPE_KERNEL
  EXPECT_EQ(node_types(recording.graph), std::vector<int>(known.launches, kKernelNode));
  std::vector<Bytes> scribbled;  // over whatever of the host's memory was let go
  for (int i = 0; i < 1000; ++i) scribbled.emplace_back(16 + i, std::byte{0x5a});
  EXPECT_EQ(replay(recording, call, stream), known.eager);
}

// The backend's own stream may be captured too; then its blocking calls are refused, not deadlocked or recorded.
TEST(Capture, OfTheBackendsOwnStream) {
  const Known known;
  const GpuLayer layer(gpu(), known.caps, known.experts.stacked());
  const GpuCall call(layer, known.inputs.tensors);
  const auto own = static_cast<cuda::CUstream>(own_stream(gpu()).handle);
  call.poison();
  cuda::GraphExec exec;
  {
    cuda::ScopedCapture capture(context(), own, CaptureMode::thread_local_mode);
    fourfold::run(call.bind({own}));
    EXPECT_NE(usage_error([&] { call.poison(); }).find("captured"), std::string::npos);
    exec = capture.end().instantiate();
  }
  exec.launch(own);
  synchronize(gpu(), {own});
  EXPECT_EQ(call.out(), known.eager);
}

}  // namespace
}  // namespace fourfold::gpu_test
