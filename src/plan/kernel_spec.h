// One kernel instance that a plan can launch, as text: what is compiled, with which options, and what the plan assumes
// of the result. The list of specs of a plan is closed: everything that resolves, packs or checks kernels works on it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fourfold {

struct KernelSpec {
  std::string source = {};  ///< file below kernels/, "moe/gate_up_naive.cu"; its stem is the extern "C" entry
  std::vector<std::pair<std::string, std::string>> defines = {};  ///< macro and value, ascending by macro, each once
  int block_threads = 0;                                          ///< threads of a block; at most 1024
  int max_registers = 0;          ///< a thread's registers that the plan's occupancy assumes
  std::int64_t shared_bytes = 0;  ///< shared memory of a block, static and dynamic

  bool operator==(const KernelSpec&) const = default;
  /// The name of the extern "C" function: the stem of `source`. Pure.
  std::string entry() const;
  /// "gate_up_naive<ACTIVATION=silu,DTYPE=bf16,FORMAT=nvfp4>": names an instance to people and in logs. Pure.
  std::string name() const;
};

}  // namespace fourfold
