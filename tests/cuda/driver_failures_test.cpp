// Every call that the GPU backend makes of the driver fails in turn, with every plausible result: always an Error that
// names the call (or a line in the log, where a destructor made it), nothing left alive, and a retry that works.
#include <gtest/gtest.h>
#include <malloc.h>

#include <map>

#include "cuda_backend_fixture.h"

namespace fourfold::cuda {
namespace {

/// Results of each family: bad argument, no memory, not started, stub, busy, no device, bad image, bad context, bad
/// handle, bad state, missing symbol, not ready, illegal address and launch failure (both stick), forbidden by a
/// capture (three ways), unknown, a number that no driver of today has.
constexpr CUresult kResults[] = {1,   2,   3,   34,  46,  100, 101, 200, 201, 209, 400,
                                 401, 500, 600, 700, 719, 900, 901, 906, 999, 4711};

constexpr const char* kKinds[] = {"context", "stream", "event", "module", "memory", "host", "graph", "graph_exec"};

/// Calls whose failure does not reach the caller: the object is gone either way.
bool is_made_by_destructors(const std::string& name) {
  for (const char* part : {"Destroy", "Free", "Unload", "Release", "CtxPop", "ExchangeStreamCaptureMode", "CtxPush"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

class DriverFailures : public CudaBackendTest {
 protected:
  void SetUp() override {
    CudaBackendTest::SetUp();
    driver_.reset();  // the backend under test is the driver's only owner, as in a program
    // What was freed becomes noise, so that a call through it is no accident that works.
    ::mallopt(M_PERTURB, 0x5a);
  }
  void TearDown() override {
    ::mallopt(M_PERTURB, 0);
    CudaBackendTest::TearDown();
  }

  /// glibc keeps the first seven freed blocks of a size as they are: these are not the driver's.
  static void fill_thread_cache() {
    std::vector<std::unique_ptr<std::byte[]>> blocks;
    blocks.reserve(8);
    for (int i = 0; i < 8; ++i) blocks.emplace_back(new std::byte[sizeof(DriverApi)]);
  }
  /// From opening the driver to a replayed graph, and all of it destroyed.
  void play() {
    ImageStoreOptions images = options();
    images.disk.enabled = false;
    images.report = images.disk.report = [](std::string_view) {};
    auto driver = DriverApi::open(FOURFOLD_STAND_IN_CUDA);
    fill_thread_cache();
    Backend backend(make_cuda_interface(std::move(driver), 0, std::move(images), true, true));
    const DeviceLayer layer(caps_, backend);
    warm_up(layer.plan, backend);
    run(layer.bind(own_stream(backend)));
    synchronize(backend, own_stream(backend));
    std::vector<std::byte> result(static_cast<std::size_t>(layer.tensors.out.bytes()));
    copy_to_host(backend, result, {static_cast<const std::byte*>(layer.tensors.out.data), result.size()});
    replay(layer);
  }
  void replay(const DeviceLayer& layer) {
    const ContextRef context = Context::retain(DriverApi::open(FOURFOLD_STAND_IN_CUDA), 0);
    const Stream stream = Stream::create(context);
    const Event begin = Event::create(context, true), end = Event::create(context, true);
    begin.record(stream.value());
    GraphExec exec;
    {
      ScopedCapture capture(context, stream.value(), CaptureMode::thread_local_mode);
      run(layer.bind({stream.value()}));
      const Graph graph = capture.end();
      EXPECT_EQ(graph.node_count(), 5u);
      exec = graph.instantiate();
    }
    exec.launch(stream.value());
    end.record(stream.value());
    end.synchronize();
    EXPECT_EQ(Event::elapsed_ms(begin, end), 0);
    stream.synchronize();
  }

  int live() const {
    int count = 0;
    for (const char* kind : kKinds) count += control_.live(kind);
    return count;
  }
  /// What a destructor that could not call the driver left, objects and the thread's state, is no matter of the next.
  void clean_up() {
    const auto driver = DriverApi::open(FOURFOLD_STAND_IN_CUDA);
    CUcontext popped = nullptr;
    while (control_.context_depth() > 0) driver->ctx_pop_current.function(&popped);
    int mode = 0;
    driver->thread_exchange_capture_mode.function(&mode);
    control_.forget();
  }
};

TEST_F(DriverFailures, EveryCallWithEveryResult) {
  control_.reset();
  play();
  std::map<std::string, int> calls;
  for (const StandInCall& call : control_.calls())
    if (call.thread != 0) ++calls[call.name];  // 0: replayed by a graph, which is no call of ours
  ASSERT_GT(calls.size(), 40u);
  for (const auto& [name, count] : calls)
    for (int skip = 0; skip < count; ++skip)
      for (const CUresult result : kResults) {
        SCOPED_TRACE(name + " number " + std::to_string(skip) + " returns " + std::to_string(result));
        control_.reset();
        control_.fail(name.c_str(), skip, result);
        std::string error;
        try {
          play();
        } catch (const Error& caught) {
          error = caught.what();
          EXPECT_NE(caught.code(), ErrorCode::bad_input) << error;
        }
        const bool names_call = error.find(name) != std::string::npos;
        // Asked whether a stream is captured, 906 is an answer: yes.
        const bool is_answer = name == "cuStreamIsCapturing" && result == kStreamCaptureImplicit;
        EXPECT_TRUE(names_call || (error.empty() ? is_made_by_destructors(name) : is_answer)) << error;
        EXPECT_EQ(control_.failures_left(), 0);
        EXPECT_LE(live(), is_made_by_destructors(name) ? 1 : 0);
        EXPECT_TRUE(is_made_by_destructors(name) || control_.context_depth() == 0);
        EXPECT_TRUE(is_made_by_destructors(name) || control_.thread_mode() == 0);
        clean_up();
        if (HasFailure()) return;
      }
  control_.reset();
  EXPECT_NO_THROW(play());
}

}  // namespace
}  // namespace fourfold::cuda
