// run() takes nothing from the heap: counted by standing in front of malloc for the whole test program.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "support/moe_layer.h"
#include "support/routes.h"

using namespace fourfold;
using support::Bytes;
using support::MoeLayer;

namespace {
std::atomic<std::uint64_t> calls{0};
}  // namespace

#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
constexpr bool kCounted = false;
#else
// glibc's own entry points, so that one heap serves all.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t bytes) {
  ++calls;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++calls;
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  ++calls;
  return __libc_realloc(old, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  ++calls;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++calls;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  ++calls;
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* data) { __libc_free(data); }
}
constexpr bool kCounted = true;
#endif

TEST(Run, AllocatesNothing) {
  if (!kCounted) GTEST_SKIP() << "the sanitizer owns malloc";
  { delete new int; }
  ASSERT_GT(calls.load(), 0u) << "the counter must count";
  const Caps caps = support::caps_of("t257 k4 e8 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  for (const auto& backend : support::backends()) {
    const MoeLayer layer(caps, experts.stacked(), *backend);
    for (std::int64_t tokens : {1, 64, 257})
      for (bool one_expert : {false, true}) {
        RandomCall call = random_call(caps, tokens, 1);
        if (one_expert) support::set_ids(call, std::vector<std::int64_t>(tokens * 4, 5));
        Bytes out(call.tensors.x.bytes());
        MoeTensors tensors = call.tensors;
        tensors.weights = &layer.weights();
        tensors.out = TensorView(out.data(), caps.activation_dtype, {tokens, caps.hidden});
        const Binding binding = fourfold::bind(layer.plan(), layer.backend(), tensors, layer.workspace());
        run(binding);  // the threads of the team are made by the first run of a process
        const std::uint64_t before = calls.load();
        for (int repeat = 0; repeat < 20; ++repeat) run(binding);
        EXPECT_EQ(calls.load(), before) << tokens << " tokens on " << cpu_isa_name(backend->device().isa);
      }
  }
}
