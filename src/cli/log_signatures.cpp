// Lines that a log is known to have when something goes wrong. Sources of those that are not ours: the failure tables
// of a published field review of a four-card server, and the texts of vLLM, PyTorch, CUDA, NCCL and the kernel driver.
#include "log_signatures.h"

#include <array>

namespace fourfold::cli {
namespace {

std::vector<LogSignature> our_signatures() {
  return {
      {"capture_miss",
       "fourfold",
       {{"is not loaded on cuda:", "the stream's capture is"}},
       "a graph capture met a kernel that was never loaded; nothing was compiled and the stream is usable",
       "call warm_up(plan, backend) before the capture begins; doctor --capture lists what a size needs"},
      {"frozen_miss",
       "fourfold",
       {{"is not loaded", "frozen"}},
       "after freeze() a call met a kernel that was never loaded: its plan was not warmed up",
       "call warm_up with every plan before freeze()"},
      {"workspace_short",
       "fourfold",
       {{"bind: workspace has", "the plan needs"}},
       "the arena that was passed in is smaller than the plan's",
       "allocate plan.workspace_bytes(), or plan a smaller capacity: fourfold plan PROBLEM --fit BYTES"},
      {"tokens_beyond_capacity",
       "fourfold",
       {{"tokens, but the plan serves at most max_tokens"}},
       "a batch is larger than the capacity that was planned",
       "plan a larger capacity, or slice the batch with run_sliced"},
      {"device_memory",
       "fourfold",
       {{"bytes asked,", "free device memory, or plan for fewer tokens"}},
       "the GPU has too little free memory for the weights or the arena",
       "fourfold plan --fit-tokens N says which capacity leaves room for N tokens of KV cache"},
      {"bad_cache_image",
       "fourfold",
       {{"from the disk cache is dropped"}},
       "an entry of the kernel cache was of no use and is built again",
       "nothing, once; when it repeats, fourfold kernels verify --remove-bad"},
      {"no_driver",
       "fourfold",
       {{"no CUDA driver:"}, {"the CUDA driver", "does not start"}},
       "the NVIDIA driver is missing or does not start",
       "fourfold doctor says what was looked for; nvidia-smi must work for the same user"},
      {"unknown_setting",
       "fourfold",
       {{"is no setting and is ignored"}},
       "an environment variable FOURFOLD_... has a name that nothing reads",
       "correct the name: docs/settings.md lists all; one that nothing reads protects nothing"},
      {"plan_refused",
       "fourfold",
       {{"fourfold:", "; use "}},
       "a problem or an argument was refused; the line names the field, its value and what would be accepted",
       "take the value that the line offers"},
  };
}

std::vector<LogSignature> published_signatures() {
  return {
      {"admission",
       "vLLM",
       {{"larger than the maximum number of tokens that can be stored in kv cache"},
        {"estimated maximum model length"},
        {"kv cache is needed, which is larger than the available kv cache memory"},
        {"no available memory for the cache blocks"}},
       "the KV pool is smaller than one sequence of the context that was asked for",
       "lower the context, or give the pool more: fourfold plan --fit-tokens N prices the arena's share"},
      {"out_of_memory",
       "PyTorch",
       {{"cuda out of memory", "tried to allocate"},
        {"outofmemoryerror"},
        {"cuda_error_out_of_memory"},
        {"cudaerrormemoryallocation"}},
       "an allocation failed; after a healthy start it is a temporary that profiling never saw (36 to 48 MiB are "
       "typical)",
       "pin the number of KV blocks below what was found, or reserve the temporaries: plan --reserve"},
      {"capture_forbidden",
       "CUDA",
       {{"operation not permitted when stream is capturing"},
        {"cudaerrorstreamcapture"},
        {"cuda_error_stream_capture"},
        {"operation failed due to a previous error during capture"}},
       "something synchronised, allocated or compiled inside a graph capture",
       "warm up every captured size eagerly before the capture; look for the first such line, the others follow"},
      {"capture_warm_up_asked",
       "b12x",
       {{"stream is capturing"}, {"kernelresolutionfrozenerror"}, {"kernel resolution", "frozen"}},
       "a kernel was to be resolved first inside a capture, or after kernels were frozen",
       "run one eager call of that token count before the capture"},
      {"stream_key_collision",
       "b12x",
       {{"stream", "key", "collision"}, {"channel", "key", "collision"}, {"stream-key"}},
       "two logical channels of a collective share one physical stream's key",
       "give each channel a stream of its own, or start without the one-shot collectives"},
      {"illegal_address",
       "CUDA",
       {{"illegal memory access"}, {"illegal address"}, {"cudaerrorillegaladdress"}, {"cuda_error_illegal_address"}},
       "a kernel read or wrote outside its memory; every later error of the process follows from it",
       "restart with CUDA_LAUNCH_BLOCKING=1 to find the kernel; fourfold verify --device cuda:0 checks ours"},
      {"gpu_fault",
       "NVIDIA driver",
       {{"nvrm: xid"}},
       "the driver reports a fault of the GPU or of a program on it; the Xid number says which",
       "look the number up in NVIDIA's Xid catalogue; 48, 63, 64, 79, 94 and 95 are hardware"},
      {"collective",
       "NCCL",
       {{"watchdog", "timeout"},
        {"unhandled cuda error"},
        {"unhandled system error"},
        {"ncclsystemerror"},
        {"remote process exited or there was a network error"}},
       "a rank of a collective died or never arrived; the rank that failed first has the real error",
       "look for the earliest error on any rank; check that every rank captured the same sizes"},
      {"compile_after_ready",
       "any",
       {{"compil"}, {"jit"}, {"ninja"}, {"autotun"}},
       "a kernel was compiled or tuned after the server said that it was ready: the first requests of a shape wait",
       "prime every shape before traffic; ours: fourfold kernels build and doctor --capture",
       true},
      {"preemption",
       "vLLM",
       {{"is preempted"}, {"preempted by"}, {"preempting"}},
       "sequences were thrown out of the KV cache and will be computed again: the pool is too small for the load",
       "fewer sequences at a time, or more pool; fourfold plan --sweep prices it in tokens"},
      {"left_captured_path",
       "vLLM",
       {{"exceeds", "cudagraph"}, {"exceeds", "cuda graph"}, {"not in", "capture sizes"}},
       "a batch is larger than the captured window and runs without a graph",
       "sequences x (1 + draft depth) must not exceed the window: fourfold plan check CONFIG"},
      {"killed",
       "Linux",
       {{"out of memory: killed process"}, {"oom-kill"}, {"oom_reaper"}},
       "the system ran out of host memory and killed a process",
       "lower the host's caches and pinned buffers; look at memory limits of the container"},
  };
}

constexpr std::array<std::string_view, 4> kReadyLines{"application startup complete", "server is ready",
                                                      "ready to serve", "uvicorn running on"};

}  // namespace

const std::vector<LogSignature>& log_signatures() {
  static const std::vector<LogSignature> all = [] {
    std::vector<LogSignature> signatures = our_signatures();
    for (LogSignature& signature : published_signatures()) signatures.push_back(std::move(signature));
    return signatures;
  }();
  return all;
}

std::span<const std::string_view> ready_lines() { return kReadyLines; }

}  // namespace fourfold::cli
