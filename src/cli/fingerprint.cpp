// One line, and its JSON, that says what is about to run.
#include "fingerprint.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <vector>

#include "device_choice.h"
#include "fourfold/moe.h"
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

Fingerprint warm_fingerprint(const Plan& plan, Backend& backend) {
  Fingerprint fingerprint;
  const auto start = std::chrono::steady_clock::now();
  warm_up(plan, backend);
  fingerprint.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fingerprint.counters = kernel_counters(backend);
  fingerprint.device = device_text(plan.device());
  fingerprint.what = problem_text({plan.caps(), {plan.caps().max_tokens}, {}});
  for (const Band& band : plan.bands())
    fingerprint.bands +=
        fmt::format("{}{}..{}", fingerprint.bands.empty() ? "" : " ", band.min_tokens, band.max_tokens);
  if (fingerprint.bands.empty()) fingerprint.bands = "none";
  fingerprint.capacity = plan.caps().max_tokens;
  fingerprint.arena_bytes = plan.workspace_bytes();
  fingerprint.weight_bytes = plan.weight_bytes();
  fingerprint.kernels = plan.kernels().size();
  return fingerprint;
}

Fingerprint model_fingerprint(const Model& model, const std::string& folder, const Device& device) {
  Fingerprint fingerprint;
  fingerprint.device = device_text(device);
  fingerprint.what = fmt::format("{}, experts {}", folder, model.format_text());
  fingerprint.capacity = model.context();
  fingerprint.weight_bytes = model.weight_bytes();
  fingerprint.seconds = model.load_seconds();
  return fingerprint;
}

std::string fingerprint_line(const Fingerprint& fingerprint) {
  const KernelCounters& from = fingerprint.counters;
  std::string text = fmt::format("fourfold {} ({}, program {}) | {} | {}", FOURFOLD_VERSION, FOURFOLD_COMMIT,
                                 program_digest(), fingerprint.device, fingerprint.what);
  if (!fingerprint.bands.empty())
    text += fmt::format(" | bands {} | capacity {} | arena {} bytes", fingerprint.bands, fingerprint.capacity,
                        fingerprint.arena_bytes);
  else
    text += fmt::format(" | context {}", fingerprint.capacity);
  text += fmt::format(" | weights {} bytes", fingerprint.weight_bytes);
  if (fingerprint.kernels > 0)
    text += fmt::format(" | kernels {}: memory {}, pack {}, disk {}, compiled {}", fingerprint.kernels,
                        from.from_memory, from.from_pack, from.from_disk, from.compiled);
  return text + fmt::format(" | {:.3f} s", fingerprint.seconds);
}

Json fingerprint_json(const Fingerprint& fingerprint) {
  return {{"version", FOURFOLD_VERSION},
          {"commit", FOURFOLD_COMMIT},
          {"program", program_digest()},
          {"device", fingerprint.device},
          {"what", fingerprint.what},
          {"bands", fingerprint.bands},
          {"capacity", fingerprint.capacity},
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
