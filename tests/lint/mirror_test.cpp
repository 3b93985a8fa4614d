// Tests mirror sources: every source has a test that looks at it, and every test folder has a source folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "source_tree.h"

namespace fourfold::lint {
namespace {

/// Sources without a test of their name and whose header no test includes: the test that runs them instead. A path that
/// ends in '/' or '_' stands for all that begin so.
const std::map<std::string, std::string>& tested_elsewhere() {
  static const std::map<std::string, std::string> table = {
      {"src/core/fmt_instances.cpp", "tests/core/check_test.cpp"},
      {"src/backend/workspace.cpp", "tests/backend/backend_test.cpp"},
      // Verbs are run as a program.
      {"src/cli/", "tests/cli/model_verbs_test.cpp"},
      // Parts of the operation, by what is special about them.
      {"src/cpu/activation.cpp", "tests/moe/activation_test.cpp"},
      {"src/cpu/cpu_backend.cpp", "tests/moe/isa_matrix_test.cpp"},
      {"src/cpu/isa.cpp", "tests/moe/isa_matrix_test.cpp"},
      {"src/cpu/micro_kernel_", "tests/moe/isa_matrix_test.cpp"},
      {"src/cpu/ops_kernels_", "tests/cpu/ops_dense_test.cpp"},
      {"src/cpu/probe.cpp", "tests/cli/problem_verbs_test.cpp"},
      {"src/cpu/probe_", "tests/cli/problem_verbs_test.cpp"},
      {"src/cpu/repack.cpp", "tests/moe/shapes_test.cpp"},
      {"src/cpu/route.cpp", "tests/moe/routing_test.cpp"},
      {"src/cpu/run_moe.cpp", "tests/moe/shapes_test.cpp"},
      // The facade and planning, by what is special about them.
      {"src/moe/bind.cpp", "tests/backend/bind_test.cpp"},
      {"src/moe/prepare_weights.cpp", "tests/backend/stacked_source_test.cpp"},
      {"src/moe/random_experts.cpp", "tests/moe/verify_test.cpp"},
      {"src/moe/run.cpp", "tests/moe/shapes_test.cpp"},
      {"src/plan/cpu_plan.cpp", "tests/moe/memory_test.cpp"},
      {"src/plan/cpu_weight_layout.cpp", "tests/moe/memory_test.cpp"},
      // Parts of a decoder: whole checkpoints are compared with reference values.
      {"src/model/dense_reader.cpp", "tests/model/decoder_test.cpp"},
      {"src/model/families/", "tests/model/decoder_test.cpp"},
      {"src/model/feed_forward.cpp", "tests/model/decoder_test.cpp"},
      {"src/model/kv_cache.cpp", "tests/model/decoder_test.cpp"},
      {"src/model/layer.cpp", "tests/model/decoder_test.cpp"},
      {"src/model/model.cpp", "tests/model/decoder_test.cpp"},
      {"src/model/model_load.cpp", "tests/model/decoder_test.cpp"},
      {"src/model/step_buffers.cpp", "tests/model/decoder_test.cpp"},
      // Parts of reading and writing a checkpoint.
      {"src/model/checkpoint_writer.cpp", "tests/model/quantize_checkpoint_test.cpp"},
      {"src/model/json_text.cpp", "tests/model/hf_config_test.cpp"},
      {"src/model/linear_reader.cpp", "tests/model/expert_reader_test.cpp"},
      {"src/model/message_text.cpp", "tests/model/checkpoint_test.cpp"},
      {"src/model/quantization_config.cpp", "tests/model/expert_reader_test.cpp"},
      {"src/model/quantized_layout.cpp", "tests/model/quantize_checkpoint_test.cpp"},
  };
  return table;
}

bool listed(const std::string& path) {
  return std::any_of(tested_elsewhere().begin(), tested_elsewhere().end(), [&](const auto& row) {
    const bool prefix = row.first.ends_with('/') || row.first.ends_with('_');
    return prefix ? path.starts_with(row.first) : path == row.first;
  });
}

/// "src/core/log.cpp" -> "core/log".
std::string module_of(const std::string& path) { return path.substr(4, path.rfind('.') - 4); }

TEST(Mirror, EverySourceHasATest) {
  std::set<std::string> tests, included;
  for (const SourceFile& file : files_below("tests", {".cpp", ".h"})) {
    if (file.path.ends_with("_test.cpp")) tests.insert(file.path);
    for (const Include& include : includes_of(file))
      if (include.quoted) included.insert(include.target);
  }
  std::size_t checked = 0;
  for (const SourceFile& file : files_below("src", {".cpp"})) {
    ++checked;
    const std::string module = module_of(file.path);
    EXPECT_TRUE(tests.contains("tests/" + module + "_test.cpp") || included.contains(module + ".h") ||
                listed(file.path))
        << file.path << ": no tests/" << module << "_test.cpp, no test includes " << module
        << ".h, and tests/lint/mirror_test.cpp lists none";
  }
  EXPECT_GT(checked, 30u);
}

TEST(Mirror, EveryListedSourceAndTestIsThere) {
  const auto sources = files_below("src", {".cpp"});
  for (const auto& [path, test] : tested_elsewhere()) {
    const bool used = std::any_of(sources.begin(), sources.end(),
                                  [&](const SourceFile& file) { return file.path.starts_with(path); });
    EXPECT_TRUE(used) << path << " is listed in tests/lint/mirror_test.cpp, but no source has that name";
    EXPECT_NE(read_source(test).text.find("TEST"), std::string::npos) << test << " is listed and has no test";
  }
}

TEST(Mirror, EverySourceFolderHasTests) {
  std::map<std::string, std::size_t> count;
  for (const SourceFile& file : files_below("tests", {"_test.cpp"})) ++count[file.path.substr(0, file.path.rfind('/'))];
  std::set<std::string> areas;
  for (const SourceFile& file : files_below("src", {".cpp"})) areas.insert(file.area);
  ASSERT_GE(areas.size(), 8u);
  for (const std::string& area : areas) EXPECT_GT(count["tests/" + area], 0u) << "tests/" << area;
}

TEST(Mirror, EveryTestFolderMirrorsASourceFolder) {
  std::set<std::string> areas = {"gpu", "lint"};  // of the GPU machine, and of the tree
  for (const SourceFile& file : files_below("src", {".cpp"})) areas.insert(file.area);
  std::size_t checked = 0;
  for (const SourceFile& file : files_below("tests", {"_test.cpp"})) {
    ++checked;
    const std::string folder = file.path.substr(6, file.path.find('/', 6) - 6);
    EXPECT_TRUE(areas.contains(folder)) << file.path << " would not be built: no src/" << folder;
  }
  EXPECT_GT(checked, 20u);
}

}  // namespace
}  // namespace fourfold::lint
