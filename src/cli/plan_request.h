// From the arguments of `plan` to what is planned: a layer, a device, the ranks that share it, the price of a KV token.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fourfold/model.h"
#include "fourfold/plan.h"
#include "kv_price.h"

namespace fourfold::cli {

/// As the user wrote it. Sizes are texts, because they may have units.
struct PlanArguments {
  std::string problem;
  std::string model;
  std::string format;
  std::string dtype = "bf16";
  std::int64_t max_tokens = 0;
  std::vector<std::int64_t> capture;
  int tp = 1, ep = 1;
  // The device, and fields of it that are said otherwise.
  std::string device;
  std::string arch;
  int sms = 0, threads = 0;
  std::string smem, memory, isa;
  // KV cache.
  std::string kv_bytes_per_token, kv_record_bytes;
  std::string kv_dtype;
  std::int64_t kv_layers = 0;
  int dcp = 1;
  // Memory of a rank for the arena and the cache.
  std::string pool, reserve, other_weights;
};

/// Adds the options that describe what is planned; `plan check` reads them from a file instead.
void add_plan_request_options(CLI::App& verb, PlanArguments& arguments);

/// What they mean.
struct PlanRequest {
  Problem problem;  ///< of the whole layer; caps.max_tokens is the capacity
  Device device;
  std::vector<RankShare> ranks;  ///< at least one
  bool split = false;            ///< tp x ep > 1
  int tp = 1;
  std::optional<ModelShape> model;
  std::int64_t layers = 1;  ///< with experts
  std::vector<std::int64_t> capture;
  KvPrice kv;
  /// Bytes of one rank for arena and cache: --pool, or the device's memory less the experts, the other weights and
  /// --reserve; empty when neither is known.
  std::optional<std::int64_t> pool;
  std::string pool_text;  ///< how it was found, or what is missing
  std::vector<std::string> notes;
};

/// Throws usage for arguments that contradict each other or are missing, and what its parts throw.
PlanRequest plan_request(const PlanArguments& arguments);

/// The device that --device, @arch and the overrides describe.
Device device_of(const PlanArguments& arguments, const std::string& problem_arch);

}  // namespace fourfold::cli
