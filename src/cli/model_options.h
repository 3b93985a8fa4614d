// The options that every verb with a model in it shares, and how they load one.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "device_choice.h"
#include "fingerprint.h"
#include "fourfold/model.h"

namespace fourfold::cli {

struct ModelChoice {
  std::string folder;
  std::string device = "cpu";
  std::string activations = "bf16";
  std::int64_t context = 0;
  bool no_mmap = false;
};

inline void add_model_options(CLI::App& verb, ModelChoice& choice) {
  verb.add_option("model", choice.folder, "a checkpoint folder")->required();
  verb.add_option("--device", choice.device, kCpuDeviceHelp)->capture_default_str();
  verb.add_option("--activations", choice.activations, "bf16, or f32 for the exact path")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "f32"}));
  verb.add_option("--context", choice.context, "positions of the KV cache; 0 is the model's own maximum")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24));
  verb.add_flag("--no-mmap", choice.no_mmap, "read the weights instead of mapping the files");
}

/// Loads the model and writes its fingerprint to stderr, and into `fingerprint` when there is one.
inline std::unique_ptr<Model> load_model(const ModelChoice& choice, Fingerprint* fingerprint = nullptr) {
  ModelOptions options;
  options.activations = choice.activations == "f32" ? DType::f32 : DType::bf16;
  options.memory_map = !choice.no_mmap;
  options.context = choice.context;
  const std::shared_ptr<Backend> backend = open_cpu(choice.device, "a whole model");
  std::unique_ptr<Model> model = Model::load(choice.folder, backend, options);
  const Fingerprint found = model_fingerprint(*model, choice.folder, *backend);
  print_fingerprint(found);
  if (fingerprint != nullptr) *fingerprint = found;
  return model;
}

}  // namespace fourfold::cli
