// One line, and its JSON, that says what is about to run.
#include "fingerprint.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "device_choice.h"
#include "fourfold/error.h"
#include "fourfold/moe.h"
#include "fourfold_sources.h"
#include "fourfold_version.h"

namespace fourfold::cli {

std::string program_digest() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  if (!file) return "unknown";
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  std::vector<char> block(1 << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0)
    XXH3_64bits_update(&state, block.data(), static_cast<std::size_t>(file.gcount()));
  return fmt::format("{:016x}", XXH3_64bits_digest(&state));
}

namespace {

std::string bands_text(const Plan& plan) {
  std::string text;
  for (const Band& band : plan.bands())
    text += fmt::format("{}{}..{}", text.empty() ? "" : " ", band.min_tokens, band.max_tokens);
  return text.empty() ? "none" : text;
}

/// Everything that plans say without a device.
Fingerprint planned(std::span<const Plan> plans, std::string what, const Backend& backend) {
  Fingerprint fingerprint;
  fingerprint.device = full_device_text(backend.device());
  fingerprint.what = std::move(what);
  fingerprint.plans = plans.size();
  std::set<std::string> kernels;
  for (const Plan& plan : plans) {
    const std::string bands = bands_text(plan);
    if (fingerprint.bands.empty()) fingerprint.bands = bands;
    if (fingerprint.bands != bands) fingerprint.bands = "various";
    fingerprint.capacity = std::max(fingerprint.capacity, plan.caps().max_tokens);
    fingerprint.arena_bytes = std::max(fingerprint.arena_bytes, plan.workspace_bytes());
    fingerprint.weight_bytes = std::max(fingerprint.weight_bytes, plan.weight_bytes());
    for (const std::string& kernel : plan.kernels()) kernels.insert(kernel);
  }
  if (plans.empty()) fingerprint.bands = "none";
  fingerprint.kernels = kernels.size();
  return fingerprint;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Fingerprint warm_fingerprint(std::span<const Plan> plans, std::string what, Backend& backend) {
  Fingerprint fingerprint = planned(plans, std::move(what), backend);
  const auto start = std::chrono::steady_clock::now();
  for (const Plan& plan : plans) warm_up(plan, backend);
  fingerprint.seconds = seconds_since(start);
  fingerprint.counters = kernel_counters(backend);
  return fingerprint;
}

Fingerprint warm_fingerprint(const Plan& plan, Backend& backend) {
  return warm_fingerprint(std::span(&plan, 1), problem_text({plan.caps(), {plan.caps().max_tokens}, {}}), backend);
}

Fingerprint warm_fingerprint(std::span<const Caps> problems, std::string what, Backend& backend) {
  std::vector<Plan> plans;
  const auto start = std::chrono::steady_clock::now();
  for (const Caps& caps : problems) {
    if (!can_implement(caps, backend.device())) continue;
    try {
      const Plan decision = plan(caps, backend.device());
      warm_up(decision, backend);
      plans.push_back(decision);
    } catch (const Error&) {
      // The run meets the same error, with the problem that has it.
    }
  }
  Fingerprint fingerprint = planned(plans, std::move(what), backend);
  fingerprint.seconds = seconds_since(start);
  fingerprint.counters = kernel_counters(backend);
  return fingerprint;
}

Fingerprint model_fingerprint(const Model& model, const std::string& folder, Backend& backend) {
  const std::vector<Plan> plans = model.expert_plans();
  Fingerprint fingerprint = planned(plans, fmt::format("{}, experts {}", folder, model.format_text()), backend);
  fingerprint.context = model.context();
  fingerprint.weight_bytes = model.weight_bytes();
  fingerprint.counters = kernel_counters(backend);
  fingerprint.seconds = model.load_seconds();
  return fingerprint;
}

std::string fingerprint_line(const Fingerprint& fingerprint) {
  const KernelCounters& from = fingerprint.counters;
  std::string text =
      fmt::format("fourfold {} ({}, sources {}, program {}) | {} | {}", FOURFOLD_VERSION, FOURFOLD_COMMIT,
                  FOURFOLD_SOURCES, program_digest(), fingerprint.device, fingerprint.what);
  text += fmt::format(" | bands {} | capacity {} | arena {} bytes", fingerprint.bands, fingerprint.capacity,
                      fingerprint.arena_bytes);
  if (fingerprint.context > 0) text += fmt::format(" | context {}", fingerprint.context);
  return text + fmt::format(" | weights {} bytes | kernels {}: memory {}, pack {}, disk {}, compiled {} | {:.3f} s",
                            fingerprint.weight_bytes, fingerprint.kernels, from.from_memory, from.from_pack,
                            from.from_disk, from.compiled, fingerprint.seconds);
}

Json fingerprint_json(const Fingerprint& fingerprint) {
  return {{"version", FOURFOLD_VERSION},
          {"commit", FOURFOLD_COMMIT},
          {"sources", FOURFOLD_SOURCES},
          {"program", program_digest()},
          {"device", fingerprint.device},
          {"what", fingerprint.what},
          {"plans", fingerprint.plans},
          {"bands", fingerprint.bands},
          {"capacity", fingerprint.capacity},
          {"context", fingerprint.context > 0 ? Json(fingerprint.context) : Json(nullptr)},
          {"arena_bytes", fingerprint.arena_bytes},
          {"weight_bytes", fingerprint.weight_bytes},
          {"kernels",
           {{"count", fingerprint.kernels},
            {"from_memory", fingerprint.counters.from_memory},
            {"from_pack", fingerprint.counters.from_pack},
            {"from_disk", fingerprint.counters.from_disk},
            {"compiled", fingerprint.counters.compiled}}},
          {"seconds", fingerprint.seconds}};
}

void print_fingerprint(const Fingerprint& fingerprint) {
  std::fprintf(stderr, "%s\n", without_controls(fingerprint_line(fingerprint)).c_str());
}

}  // namespace fourfold::cli
