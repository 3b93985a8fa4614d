// How a CPU serves a problem: bands, kernels by name, steps and the workspace ledger.
#pragma once

#include "fourfold/plan.h"
#include "plan/plan_data.h"

namespace fourfold {

/// Fills bands, steps, segments, declined, notes, workspace_bytes, weight_bytes and cpu of `data` from data.caps
/// and data.device. The caps have passed can_implement's field rules and the device is a CPU. Throws unsupported
/// when a size leaves 63 bits. Pure.
void plan_cpu(PlanData& data);

/// The steps of a CPU run, in order: indices into Plan::steps.
enum CpuStep : int { kCpuRoute, kCpuGather, kCpuGateUp, kCpuDown, kCpuStore };

/// Whether activations are multiplied as bf16 pairs (else as fp32). Pure.
bool cpu_bf16_dot(const Caps& caps, const Device& device) noexcept;
/// Tokens of one expert up to which the direct kernels serve; above, the blocked ones. Pure.
int cpu_direct_tokens(const Device& device) noexcept;
/// Threads that share a call of `tokens`: one below the work at which a second thread pays. Pure.
int cpu_threads(const PlanData& data, std::int64_t tokens) noexcept;

}  // namespace fourfold
