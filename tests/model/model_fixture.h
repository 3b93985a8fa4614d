// Checkpoints of the test data, loaded once a program and option.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "fourfold/fourfold.h"
#include "support/files.h"
#include "support/temporary_folder.h"

namespace fourfold::test {

inline const std::string kData = FOURFOLD_SOURCE_DIR "/tests/data/";
inline const std::string kDemoModel = FOURFOLD_SOURCE_DIR "/models/moe-13m";
inline const std::string kDemoReference = kData + "moe-13m-eval/reference.json";

inline std::shared_ptr<Backend> test_backend() {
  static const std::shared_ptr<Backend> kBackend = cpu_backend();
  return kBackend;
}

inline std::unique_ptr<Model> load(const std::string& folder, DType activations, std::int64_t max_tokens = 512) {
  ModelOptions options;
  options.activations = activations;
  options.max_tokens = max_tokens;
  return Model::load(folder, test_backend(), options);
}

/// The demo model, shared by the tests of a program.
inline Model& demo_model(DType activations) {
  static std::map<DType, std::unique_ptr<Model>> models;
  auto& model = models[activations];
  if (!model) model = load(kDemoModel, activations);
  return *model;
}

using support::TemporaryFolder;

inline nlohmann::json read_json(const std::string& file) { return nlohmann::json::parse(support::read_bytes(file)); }

/// The code of the Error that `action` throws and its text; code 0 when it throws none.
template <class Action>
std::pair<int, std::string> error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  }
  return {0, "no error"};
}

}  // namespace fourfold::test
