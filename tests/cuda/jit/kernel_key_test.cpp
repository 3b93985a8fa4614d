// Whatever can change a kernel's bytes changes its key, alone; nothing else does.
#include "cuda/jit/kernel_key.h"

#include <random>
#include <set>

#include "jit_fixture.h"

namespace fourfold::cuda {
namespace {

/// Everything a key is made of, ready to be flipped.
struct Ingredients {
  std::vector<std::pair<std::string, std::string>> files = {{"moe/a.cu", "#include \"device/one.cuh\"\nvoid a() {}\n"},
                                                            {"device/one.cuh", "#include \"device/two.cuh\"\n"},
                                                            {"device/two.cuh", "// two\n"},
                                                            {"moe/b.cu", "#include \"device/one.cuh\"\nvoid a() {}\n"}};
  KernelSpec spec = sample_spec();
  KernelTarget target = sample_target();

  KernelKey key() const {
    std::vector<SourceFile> views;
    for (const auto& [path, text] : files) views.push_back({path, text});
    const SourceTree tree(views);
    return kernel_key(tree, spec, target);
  }
};

TEST(KernelKey, NothingFlippedIsAHit) {
  const KernelKey first = Ingredients().key(), second = Ingredients().key();
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.digest.size(), 32u);
}

TEST(KernelKey, EveryIngredientFlippedAloneIsAMiss) {
  using Flip = std::pair<const char*, std::function<void(Ingredients&)>>;
  const std::vector<Flip> flips = {
      {"kernel text", [](Ingredients& i) { i.files[0].second += " "; }},
      {"header", [](Ingredients& i) { i.files[1].second += " "; }},
      {"header two levels down", [](Ingredients& i) { i.files[2].second[3] = 'T'; }},
      {"source", [](Ingredients& i) { i.spec.source = "moe/b.cu"; }},
      {"macro", [](Ingredients& i) { i.spec.defines[0].first = "FORMAU"; }},
      {"value", [](Ingredients& i) { i.spec.defines[0].second = "mxfp4"; }},
      {"empty value", [](Ingredients& i) { i.spec.defines[1].second = ""; }},
      {"macro less", [](Ingredients& i) { i.spec.defines.pop_back(); }},
      {"macro more", [](Ingredients& i) { i.spec.defines.emplace_back("WIDE", "1"); }},
      {"option", [](Ingredients& i) { i.target.options[0] = "--std=c++17"; }},
      {"option less", [](Ingredients& i) { i.target.options.pop_back(); }},
      {"option more", [](Ingredients& i) { i.target.options.emplace_back("-G"); }},
      {"order of options", [](Ingredients& i) { std::swap(i.target.options[0], i.target.options[1]); }},
      {"architecture", [](Ingredients& i) { i.target.architecture = "sm_90"; }},
      {"neighbouring architecture", [](Ingredients& i) { i.target.architecture = "sm_120"; }},
      {"compiler version", [](Ingredients& i) { i.target.compiler_version = "pretended 2"; }},
  };
  const KernelKey base = Ingredients().key();
  std::set<std::string> texts{base.text()}, digests{base.digest};
  for (const auto& [name, flip] : flips) {
    Ingredients changed;
    flip(changed);
    const KernelKey key = changed.key();
    EXPECT_TRUE(texts.insert(key.text()).second) << name;
    EXPECT_TRUE(digests.insert(key.digest).second) << name;
  }
}

TEST(KernelKey, WhatThePlanAssumesOfTheResultIsNoIngredient) {
  Ingredients changed;
  changed.spec.max_registers = 40;
  changed.spec.shared_bytes = 1000;
  changed.spec.block_threads = 128;
  EXPECT_EQ(changed.key(), Ingredients().key());
}

TEST(KernelKey, ASourceThatIsNotIncludedIsNoIngredient) {
  Ingredients changed;
  changed.files[3].second += "more";
  EXPECT_EQ(changed.key(), Ingredients().key());
}

// The text between two fields cannot move from one to the other, nor can a value imitate a field.
TEST(KernelKey, FieldsCannotRunIntoEachOther) {
  Ingredients a, b;
  a.target.options = {"-a", "-b"};
  b.target.options = {"-a\noption:2:-b"};
  EXPECT_NE(a.key().text(), b.key().text());
  b.target.options = {"-a-b"};
  EXPECT_NE(a.key().text(), b.key().text());
}

TEST(KernelKey, TenThousandRandomOptionSetsGiveTenThousandKeys) {
  std::mt19937_64 random(7);
  const std::vector<std::string> pool = {"-a", "-b", "-ab", "--x=1", "--x=11", "1", "", "option:1:-", "\n", "-a\n"};
  std::set<std::vector<std::string>> sets;
  std::set<std::string> texts, digests;
  while (sets.size() < 10000) {
    std::vector<std::string> options(random() % 8);
    for (std::string& option : options) option = pool[random() % pool.size()];
    if (!sets.insert(options).second) continue;
    KernelTarget target = sample_target();
    target.options = options;
    const KernelKey key = kernel_key(sample_tree(), sample_spec(), target);
    texts.insert(key.text());
    digests.insert(key.digest);
  }
  EXPECT_EQ(texts.size(), 10000u);
  EXPECT_EQ(digests.size(), 10000u);
}

TEST(KernelKey, FieldsComeBackFromTheText) {
  const auto fields = key_fields(sample_key().text());
  using Field = std::pair<std::string, std::string>;
  ASSERT_GE(fields.size(), 14u);
  EXPECT_EQ(fields[0], (Field{"file", "moe/a.cu"}));
  EXPECT_EQ(fields[1], (Field{"text", std::string(sample_files()[0].text)}));
  EXPECT_EQ(fields[4], (Field{"file", "device/two.cuh"}));
  EXPECT_EQ(fields[6], (Field{"source", "moe/a.cu"}));
  EXPECT_EQ(fields[7], (Field{"entry", "a"}));
  EXPECT_EQ(fields[10], (Field{"macro", "TILE"}));
  EXPECT_EQ(fields.back(), (Field{"compiler", "pretended 1"}));
}

TEST(KernelKey, CutTextIsNoKey) {
  const std::string instance = sample_key().instance;
  std::size_t refused = 0;
  for (std::size_t length = 1; length < instance.size(); ++length) {
    if (instance[length - 1] == '\n') continue;  // whole fields are a shorter key
    EXPECT_THROW(key_fields(instance.substr(0, length)), Error) << length;
    ++refused;
  }
  EXPECT_GT(refused, 100u);
  EXPECT_THROW(key_fields("a:99999999999999999999:b\n"), Error);
  EXPECT_THROW(key_fields("a:-1:b\n"), Error);
}

TEST(KernelKey, DescriptionNamesEveryIngredient) {
  const std::string text = describe_key(sample_key().text());
  for (const char* part : {"file moe/a.cu", "file device/two.cuh", "macro FORMAT", "value nvfp4", "architecture sm_90a",
                           "compiler pretended 1", "option --fmad=false"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(text.find("__global__"), std::string::npos) << "source text is not for people";
}

TEST(KernelKey, BadMacrosAreRefused) {
  for (const auto& defines : std::vector<std::vector<std::pair<std::string, std::string>>>{{{"B", "1"}, {"A", "1"}},
                                                                                           {{"A", "1"}, {"A", "2"}},
                                                                                           {{"1A", ""}},
                                                                                           {{"", ""}},
                                                                                           {{"A=B", ""}},
                                                                                           {{"A", "x\ny"}}}) {
    KernelSpec spec = sample_spec();
    spec.defines = defines;
    EXPECT_THROW(kernel_key(sample_tree(), spec, sample_target()), Error) << defines[0].first;
  }
}

}  // namespace
}  // namespace fourfold::cuda
