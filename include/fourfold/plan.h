// Describe the operation (Caps), ask whether and how it can run (can_implement, plan), and what it costs.
// Everything here is pure: no driver, no environment, no device memory. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fourfold/tensor.h"
#include "fourfold/weights.h"

namespace fourfold {

enum class ActivationKind : std::uint8_t { silu, swiglu_oai, situ, gelu_tanh, relu2 };

/// The activation between the two projections; g is gate, u is up, L the limit.
///   silu        g = min(g, L), u = clamp(u, -L, L) when L is given; g * sigmoid(g) * u
///   swiglu_oai  g = min(g, L), u = clamp(u, -L, L); g * sigmoid(alpha * g) * (u + beta); L defaults to 7
///   situ        4 * tanh(g / 4) * sigmoid(g) * 25 * tanh(u / 25)
///   gelu_tanh   0.5 * g * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3))) * u
///   relu2       max(u, 0)^2, no gate
/// An option that a kind does not know is refused when planning.
struct Activation {
  ActivationKind kind = ActivationKind::silu;
  std::optional<float> limit;  ///< silu and swiglu_oai; finite and > 0
  std::optional<float> alpha;  ///< swiglu_oai, default 1.702
  std::optional<float> beta;   ///< swiglu_oai, default 1

  bool gated() const noexcept { return kind != ActivationKind::relu2; }
  bool operator==(const Activation&) const = default;
};
/// "silu", "swiglu_oai", "situ", "gelu_tanh", "relu2". Pure.
std::string_view activation_name(ActivationKind kind) noexcept;

/// What the caller promises; a plan serves every call that keeps the promise.
struct Caps {
  std::int64_t max_tokens = 1;        ///< largest live token count; 0 .. max_tokens are served
  std::int64_t top_k = 1;             ///< 1 .. 64, also above `experts`
  std::int64_t experts = 1;           ///< experts whose weights are here (local), 1 .. 4096
  std::int64_t global_experts = 0;    ///< > 0: ids are global and every call brings an expert_map of this length
  std::int64_t hidden = 0;            ///< multiple of 8
  std::int64_t intermediate = 0;      ///< multiple of 8
  FormatSpec format;
  DType activation_dtype = DType::bf16;  ///< of x and out: bf16, f16; f32 on the CPU
  Activation activation;
  bool gate_up_bias = false;
  bool down_bias = false;
  bool router_weight_on_input = false;  ///< gate_up = w * (x W) + bias instead of weighting the output
  bool batch_invariant = false;         ///< same bits for a token in every batch and slice of any size

  bool operator==(const Caps&) const = default;
  /// Rows of the first projection: 2 * intermediate when gated.
  std::int64_t gate_up_rows() const noexcept { return (activation.gated() ? 2 : 1) * intermediate; }
  /// Range of valid ids: [-1, id_count()).
  std::int64_t id_count() const noexcept { return global_experts > 0 ? global_experts : experts; }
};

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Instruction sets of the CPU kernels, weakest first.
enum class CpuIsa : std::uint8_t { portable, avx2, avx512, avx512_bf16 };
/// "portable", "avx2", "avx512", "avx512_bf16". Pure.
std::string_view cpu_isa_name(CpuIsa isa) noexcept;

/// What planning needs to know of a device. Filled by a backend from hardware or by a preset.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;                      ///< for people: "h200", "AMD EPYC ..."
  // CPU
  CpuIsa isa = CpuIsa::portable;
  std::string isa_fallback_reason;       ///< why not a wider one; empty when none is wanted
  int threads = 1;
  // CUDA
  std::string arch;                      ///< "sm_90a"
  int multiprocessors = 0;
  std::int64_t shared_memory_bytes = 0;  ///< per block, opt-in limit
  std::int64_t memory_bytes = 0;
  bool naive_kernels = false;            ///< plan the kernels' plain twins: slow, obviously right, for comparison
};

/// Known devices by name ("cpu" is this process's default CPU description with portable ISA; "h200", ...).
/// Throws usage with the list of names. Pure.
Device device_preset(std::string_view name);
/// What device_preset knows. Pure.
std::vector<std::string> device_preset_names();

/// The answer of can_implement().
struct Support {
  bool ok = false;
  std::string reason;  ///< names the field, its value, the rule and what would be accepted
  explicit operator bool() const noexcept { return ok; }
};

/// One segment of the workspace. Steps are the plan's steps (Plan::steps), inclusive on both ends.
struct Segment {
  std::string name;
  std::string formula;              ///< symbolic, e.g. "R * (I padded) * 2"
  std::uint64_t offset_bytes = 0;   ///< multiple of 256
  std::uint64_t bytes = 0;          ///< exact
  int first_step = 0;
  int last_step = 0;
};

/// The kernels that serve token counts min_tokens .. max_tokens, inclusive.
struct Band {
  std::int64_t min_tokens = 0;
  std::int64_t max_tokens = 0;
  std::vector<std::string> kernels;
  std::int64_t token_tile = 0;   ///< tokens of one expert multiplied per pass over an unpacked panel
  std::int64_t column_tile = 0;  ///< output columns of the down projection owned by one work item
};

/// A kernel or path that was considered and why it declined.
struct Declined {
  std::string candidate;
  std::string reason;
};

struct PlanData;  // src/plan/plan_data.h

/// The decision: bands, kernels by name, arena, bytes. Cheap to copy (shared, immutable).
class Plan {
 public:
  explicit Plan(std::shared_ptr<const PlanData> data) : data_(std::move(data)) {}
  const Caps& caps() const noexcept;
  const Device& device() const noexcept;
  /// Ascending; together 1 .. max_tokens without a gap; none when max_tokens is 0.
  const std::vector<Band>& bands() const noexcept;
  /// The band that serves `tokens`; throws usage outside 1 .. max_tokens.
  const Band& band_for(std::int64_t tokens) const;
  const std::vector<std::string>& steps() const noexcept;      ///< names of the steps segments refer to
  const std::vector<Segment>& segments() const noexcept;
  const std::vector<Declined>& declined() const noexcept;
  const std::vector<std::string>& notes() const noexcept;      ///< e.g. subnormal handling, cost of batch_invariant
  std::vector<std::string> kernels() const;                    ///< every kernel the plan can launch, once
  std::uint64_t workspace_bytes() const noexcept;              ///< exact; one byte less is refused at bind
  std::uint64_t weight_bytes() const noexcept;                 ///< packed bytes of one layer's experts
  const std::shared_ptr<const PlanData>& data() const noexcept { return data_; }

 private:
  std::shared_ptr<const PlanData> data_;
};

/// Whether plan() would succeed, or the reason in words. Never throws for a bad caps.
Support can_implement(const Caps& caps, const Device& device);
/// Throws unsupported with can_implement's reason.
Plan plan(const Caps& caps, const Device& device);
/// plan(caps, device).workspace_bytes(): the price of a capacity, before anything is allocated. Grows with max_tokens.
/// Takes some microseconds. Throws unsupported with can_implement's reason.
std::uint64_t required_workspace_bytes(const Caps& caps, const Device& device);

/// The largest max_tokens whose workspace is at most `bytes`, for the caps' other fields; -1 when not even 0 tokens
/// fit. `limit` is the largest one that is tried. Throws unsupported when `caps` cannot run at 1 token. Pure.
std::int64_t largest_max_tokens(const Caps& caps, const Device& device, std::uint64_t bytes,
                                std::int64_t limit = (std::int64_t{1} << 31) - 1);

/// A kernel of the same problem that no count up to max_tokens launches.
struct UnreachableKernel {
  std::string kernel;
  std::int64_t from_tokens = 0;       ///< a capacity whose plan launches it: the first at which bands change
  std::uint64_t workspace_bytes = 0;  ///< of that plan
};
/// What a larger capacity than the plan's would add, by from_tokens. Empty when the plan reaches every kernel. Pure.
std::vector<UnreachableKernel> unreachable_kernels(const Plan& plan);

/// A segment's formula with the plan's numbers put in: "routes * intermediate * 2" gives "24576 * 512 * 2". Pure.
std::string formula_numbers(const Plan& plan, const Segment& segment);

/// Bytes of one layer's experts as their format defines them, before any packing: codes, scales, zero points, global
/// scales, biases of 16 bits; exl3: codes and fp16 rotations. Prices formats that cannot run, too. Throws unsupported
/// with the rule for sizes that the format does not have. Pure.
std::uint64_t layer_expert_bytes(const Caps& caps);

/// What one of tp x ep ranks holds: its experts' number and the columns of each.
struct RankShare {
  int rank = 0;                    ///< ep_rank * tp + tp_rank
  int tp_rank = 0, ep_rank = 0;
  std::int64_t first_expert = 0;
  std::int64_t first_column = 0;   ///< of the intermediate
  Caps caps;                       ///< of this rank; with ep > 1 ids are global
};
/// Splits a layer: the intermediate of every expert over `tp` ranks in whole groups of the format, the experts over
/// `ep`; what does not divide goes to the first ranks, one unit more each. Throws usage for counts below 1, unsupported
/// when a rank would get nothing. Pure.
std::vector<RankShare> split_over_ranks(const Caps& caps, int tp, int ep);

/// A problem in text: "t64 k8 e128 h2048 i768 nvfp4 bf16 silu [bias] [limit=7] ... [@arch]". See docs/cli.md.
struct Problem {
  Caps caps;                          ///< max_tokens = largest of `tokens`
  std::vector<std::int64_t> tokens;   ///< counts as written, at least one
  std::string arch;                   ///< after '@', empty when absent
};
/// Throws usage naming the token, its position and what is accepted. Pure.
Problem parse_problem(std::string_view text);
/// Inverse of parse_problem, shortest canonical form. Pure.
std::string problem_text(const Problem& problem);

}  // namespace fourfold
