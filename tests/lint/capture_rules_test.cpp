// Points 3 and 4 of the contract as rules on the sources: run() has no path to what loads kernels, one file loads them,
// and kernels include nothing but kernels.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "source_tree.h"

namespace fourfold::lint {
namespace {

namespace fs = std::filesystem;

/// The project file that a quoted include of `file` names, as the build's include paths find it; empty for none.
std::string resolved(const SourceFile& file, const std::string& target) {
  const std::string own_folder = file.path.substr(0, file.path.rfind('/') + 1);
  for (const std::string& folder :
       {own_folder, std::string("src/"), std::string("include/"), std::string(), std::string("kernels/")})
    if (fs::is_regular_file(fs::path(FOURFOLD_SOURCE_DIR) / (folder + target))) return folder + target;
  return {};
}

/// Everything that `path` includes, and what that includes, with the includer that was met first.
void follow(const std::string& path, std::map<std::string, std::string>& includer_of) {
  const SourceFile file = read_source(path);
  for (const Include& include : includes_of(file)) {
    if (!include.quoted) continue;
    const std::string target = resolved(file, include.target);
    ASSERT_FALSE(target.empty()) << path << ":" << include.line << ": " << include.target;
    if (includer_of.emplace(target, path).second) follow(target, includer_of);
  }
}

/// Sources without comments: rules are about code.
std::string code_of(const SourceFile& file) {
  std::string code;
  for (const std::string& line : file.lines) code += line.substr(0, line.find("//")) + "\n";
  return code;
}

TEST(CaptureRules, RunHasNoPathToWhatLoadsKernels) {
  const std::set<std::string> forbidden = {"src/cuda/module_cache.h", "src/cuda/plan_kernels.h",
                                           "src/cuda/cuda_backend.h"};
  for (const char* source :
       {"src/cuda/run_moe.cpp", "src/cuda/moe_params.cpp", "src/cuda/kernel.cpp", "src/moe/run.cpp"}) {
    std::map<std::string, std::string> includer_of;
    follow(source, includer_of);
    EXPECT_TRUE(includer_of.contains("src/backend/backend_interface.h") || includer_of.contains("src/cuda/kernel.h"))
        << source << ": nothing was followed";
    for (const auto& [path, includer] : includer_of)
      EXPECT_TRUE(!forbidden.contains(path) && !path.starts_with("src/cuda/jit/"))
          << source << " reaches " << path << " through " << includer;
  }
}

TEST(CaptureRules, FollowingIncludesFindsWhatIsForbiddenWhereItIs) {
  std::map<std::string, std::string> includer_of;
  follow("src/cuda/cuda_backend.cpp", includer_of);
  EXPECT_TRUE(includer_of.contains("src/cuda/module_cache.h"));
  EXPECT_TRUE(includer_of.contains("src/cuda/jit/image_store.h"));
  EXPECT_TRUE(includer_of.contains("kernels/params/moe_params.h"));
  EXPECT_TRUE(includer_of.contains("kernels/params/integers.h"));
}

/// The files of src/cuda whose code matches `pattern`.
std::set<std::string> users_of(const std::string& pattern) {
  const std::regex call(pattern);
  std::set<std::string> users;
  for (const SourceFile& file : files_below("src/cuda", {".h", ".cpp"}))
    if (std::regex_search(code_of(file), call)) users.insert(file.path);
  return users;
}

TEST(CaptureRules, OneFileLoadsModules) {
  EXPECT_EQ(users_of(R"(\bModule::load\s*\(context)"), std::set<std::string>{"src/cuda/module_cache.cpp"});
  EXPECT_EQ(users_of(R"(\.module_load_data\b)"), std::set<std::string>{"src/cuda/handles.cpp"});
}

TEST(CaptureRules, OneFileResolvesPlans) {
  EXPECT_EQ(users_of(R"(\bPlanKernels [a-z_]+;)"), std::set<std::string>{"src/cuda/cuda_backend.cpp"});
  EXPECT_EQ(users_of(R"(\bImageStore [a-z_]+;)"), std::set<std::string>{"src/cuda/plan_kernels.h"});
  EXPECT_EQ(users_of(R"(\bModuleCache [a-z_]+;)"), std::set<std::string>{"src/cuda/plan_kernels.h"});
}

// Each of these invalidates a capture somewhere when it is called at the wrong time. The owners in handles.cpp are
// called under ScopedRelaxedCapture; the backend's own wait is.
TEST(CaptureRules, WhatACaptureForbidsIsCalledInFewPlaces) {
  for (const char* name :
       {"mem_alloc", "mem_host_alloc", "stream_create", "event_create", "event_synchronize", "graph_instantiate"})
    EXPECT_EQ(users_of("\\." + std::string(name) + "\\b|driver\\(\\)\\." + name + "\\b"),
              std::set<std::string>{"src/cuda/handles.cpp"})
        << name;
  EXPECT_EQ(users_of(R"(\.stream_synchronize\b)"),
            (std::set<std::string>{"src/cuda/cuda_backend.cpp", "src/cuda/handles.cpp"}));
}

TEST(CaptureRules, WhoAllocatesOrWaitsIsRelaxed) {
  static const std::regex heavy(R"((DeviceMemory|HostMemory)::allocate\(|Stream::create\(|Context::retain\()"
                                R"(|\.synchronize\(\)|stream_synchronize)");
  std::size_t checked = 0;
  for (const SourceFile& file : files_below("src/cuda", {".cpp"})) {
    if (file.path == "src/cuda/handles.cpp") continue;
    const std::string code = code_of(file);
    if (!std::regex_search(code, heavy)) continue;
    ++checked;
    EXPECT_NE(code.find("ScopedRelaxedCapture relaxed("), std::string::npos) << file.path;
  }
  EXPECT_GE(checked, 1u);
}

TEST(CaptureRules, TheFilesOfRunCallOneEntryPoint) {
  static const std::regex entry(R"(driver(\(\))?\.([a-z_]+)\.(function|name))");
  const SourceFile file = read_source("src/cuda/kernel.cpp");
  const std::string code = code_of(file);
  std::set<std::string> entries;
  for (std::sregex_iterator match(code.begin(), code.end(), entry), end; match != end; ++match)
    entries.insert((*match)[2]);
  EXPECT_EQ(entries, std::set<std::string>{"launch_kernel"});
  for (const char* path : {"src/cuda/run_moe.cpp", "src/cuda/moe_params.cpp"})
    EXPECT_EQ(code_of(read_source(path)).find("driver"), std::string::npos) << path;
}

TEST(CaptureRules, TheFilesOfRunTakeNoLockAndNoMemory) {
  static const std::regex costly(R"(\b(mutex|lock|new|make_unique|make_shared|vector|string|getenv|call_once)\b)");
  for (const char* path : {"src/cuda/run_moe.cpp", "src/cuda/moe_params.cpp", "src/cuda/kernel.cpp", "src/moe/run.cpp"})
    EXPECT_FALSE(std::regex_search(code_of(read_source(path)), costly)) << path;
}

TEST(Kernels, IncludeNothingButKernels) {
  std::size_t files = 0, includes = 0;
  for (const SourceFile& file : files_below("kernels", {".cu", ".cuh", ".h"})) {
    ++files;
    for (const Include& include : includes_of(file)) {
      ++includes;
      EXPECT_TRUE(include.quoted) << file.path << ":" << include.line << ": <" << include.target << ">";
      EXPECT_TRUE(fs::is_regular_file(fs::path(FOURFOLD_SOURCE_DIR) / "kernels" / include.target))
          << file.path << ":" << include.line << ": " << include.target << " is no path from kernels/";
      EXPECT_EQ(include.target.find(".."), std::string::npos) << file.path << ":" << include.line;
    }
  }
  EXPECT_GE(files, 10u);
  EXPECT_GE(includes, 10u);
}

TEST(Kernels, ParamsIncludeOnlyParams) {
  std::size_t includes = 0;
  for (const SourceFile& file : files_below("kernels/params", {".h"}))
    for (const Include& include : includes_of(file)) {
      ++includes;
      EXPECT_TRUE(include.target.starts_with("params/")) << file.path << ":" << include.line << ": " << include.target;
    }
  EXPECT_GE(includes, 1u);
}

TEST(Kernels, NoOtherFileLiesAmongThem) {
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(FOURFOLD_SOURCE_DIR) / "kernels")) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string ending = entry.path().extension().string();
    EXPECT_TRUE(ending == ".cu" || ending == ".cuh" || ending == ".h") << entry.path();
  }
  EXPECT_GE(files, 10u);
}

}  // namespace
}  // namespace fourfold::lint
