// Folders of safetensors files: index, absences, disagreements, alignment.
#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include "checkpoint_fixture.h"

namespace {

using namespace fixture;
using fourfold::Checkpoint;
using fourfold::DType;
using fourfold::ErrorCode;
using fourfold::TensorBytes;

RawTensor floats(std::initializer_list<float> values) {
  return {"F32", {static_cast<std::int64_t>(values.size())}, bytes_of(values)};
}

void write_index(const std::string& folder, const nlohmann::json& weight_map) {
  write_bytes(folder + "/model.safetensors.index.json", nlohmann::json{{"weight_map", weight_map}}.dump());
}

TEST(Checkpoint, BothReadModesGiveTheSameBytes) {
  const auto mapped = Checkpoint::open(demo_folder(), true), read = Checkpoint::open(demo_folder(), false);
  ASSERT_EQ(mapped->tensors().size(), read->tensors().size());
  std::size_t compared = 0;
  for (const auto& tensor : mapped->tensors()) {
    const TensorBytes a = mapped->read(tensor.name), b = read->read(tensor.name);
    ASSERT_EQ(a.size(), tensor.bytes);
    ASSERT_EQ(b.size(), tensor.bytes);
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, 6u * (24 * 3 + 9) + 2);
}

TEST(Checkpoint, AnOddDataStartLoadsAsAlignedData) {
  const TemporaryFolder folder;
  RawTensors tensors{{"a", {"U8", {3}, "abc"}}, {"b", floats({1.5f, -2.0f})}};
  write_bytes(folder / "odd.safetensors", safetensors_bytes(tensors));
  for (bool memory_map : {true, false}) {
    const auto checkpoint = Checkpoint::open(folder / "odd.safetensors", memory_map);
    EXPECT_FALSE(checkpoint->is_folder());
    const TensorBytes b = checkpoint->read("b");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % alignof(float), 0u);
    EXPECT_EQ(b.as<float>()[0], 1.5f);
    EXPECT_EQ(b.as<float>()[1], -2.0f);
  }
}

TEST(Checkpoint, EmptyAndScalarTensorsLoad) {
  const TemporaryFolder folder;
  RawTensors tensors{{"empty", {"F32", {0, 4}, ""}}, {"scalar", {"F32", {}, bytes_of({2.5f})}}};
  write_bytes(folder / "model.safetensors", safetensors_bytes(tensors));
  for (bool memory_map : {true, false}) {
    const auto checkpoint = Checkpoint::open(folder.string(), memory_map);
    EXPECT_EQ(checkpoint->read("empty").size(), 0u);
    float value = 0;
    checkpoint->read_f32("scalar", {&value, 1});
    EXPECT_EQ(value, 2.5f);
  }
}

TEST(Checkpoint, TheIndexIsAnAllowListPerFile) {
  const TemporaryFolder folder;
  write_bytes(folder / "one.safetensors", safetensors_bytes({{"a", floats({1})}, {"stray", floats({2})}}));
  write_bytes(folder / "two.safetensors", safetensors_bytes({{"b", floats({3})}}));
  write_index(folder.string(), {{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  const auto checkpoint = Checkpoint::open(folder.string());
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_FALSE(checkpoint->contains("stray"));
  EXPECT_EQ(checkpoint->require("b").file, "two.safetensors");
}

TEST(Checkpoint, AllAbsentFilesAreListedAtOnce) {
  const TemporaryFolder folder;
  write_index(folder.string(), {{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  expect_error(ErrorCode::bad_input, {"one.safetensors", "two.safetensors"},
               [&] { Checkpoint::open(folder.string()); });
}

TEST(Checkpoint, AllAbsentTensorsAreListedAtOnce) {
  const TemporaryFolder folder;
  write_bytes(folder / "one.safetensors", safetensors_bytes({{"a", floats({1})}}));
  write_index(folder.string(), {{"a", "one.safetensors"}, {"gone", "one.safetensors"}, {"lost", "one.safetensors"}});
  expect_error(ErrorCode::bad_input, {"gone", "lost"}, [&] { Checkpoint::open(folder.string()); });
}

TEST(Checkpoint, ACutShardIsRefusedBeforeAnyTensorIsUsed) {
  const TemporaryFolder folder;
  const std::string two = safetensors_bytes({{"b", floats({3})}});
  write_bytes(folder / "one.safetensors", safetensors_bytes({{"a", floats({1})}}));
  write_bytes(folder / "two.safetensors", two.substr(0, two.size() - 1));
  write_index(folder.string(), {{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  expect_error(ErrorCode::bad_input, {"two.safetensors"}, [&] { Checkpoint::open(folder.string()); });
}

TEST(Checkpoint, ATensorInTwoShardsIsRefused) {
  const TemporaryFolder folder;
  write_bytes(folder / "one.safetensors", safetensors_bytes({{"a", floats({1})}}));
  write_bytes(folder / "two.safetensors", safetensors_bytes({{"a", floats({2})}, {"b", floats({3})}}));
  write_index(folder.string(), {{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  expect_error(ErrorCode::bad_input, {"'a'", "two.safetensors"}, [&] { Checkpoint::open(folder.string()); });
}

TEST(Checkpoint, AShardNameCannotLeaveTheFolder) {
  const TemporaryFolder folder;
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", "", "a\\b"}) {
    write_index(folder.string(), {{"a", name}});
    expect_error(ErrorCode::bad_input, {"plain file names"}, [&] { Checkpoint::open(folder.string()); });
  }
}

TEST(Checkpoint, ADamagedIndexIsRefused) {
  const TemporaryFolder folder;
  for (const char* text : {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", R"({"weight_map":{)",
                           R"({"weight_map":{"a":"x","a":"y"}})"}) {
    write_bytes(folder / "model.safetensors.index.json", text);
    expect_error(ErrorCode::bad_input, {"index.json"}, [&] { Checkpoint::open(folder.string()); });
  }
}

TEST(Checkpoint, APathWithoutTensorsIsRefused) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::bad_input, {"neither"}, [&] { Checkpoint::open(folder.string()); });
  expect_error(ErrorCode::bad_input, {"no such file"}, [&] { Checkpoint::open(folder / "nothing.safetensors"); });
}

TEST(Checkpoint, AbsentTensorsAreNamedTogether) {
  const auto checkpoint = Checkpoint::open(demo_folder());
  const std::vector<std::string> names{"model.norm.weight", "model.nothing", "model.neither"};
  expect_error(ErrorCode::bad_input, {"model.nothing", "model.neither"}, [&] { checkpoint->require_all(names); });
  expect_error(ErrorCode::bad_input, {"model.nothing"}, [&] { checkpoint->read("model.nothing"); });
}

TEST(Checkpoint, OnlyFloatsReadAsFloats) {
  const TemporaryFolder folder;
  write_bytes(folder / "model.safetensors",
              safetensors_bytes({{"h", {"F16", {2}, bytes_of<std::uint16_t>({0x3c00, 0x0001})}},
                                 {"d", {"F64", {1}, bytes_of({0.1})}},
                                 {"i", {"I32", {1}, bytes_of({1})}}}));
  const auto checkpoint = Checkpoint::open(folder.string());
  std::vector<float> out(2);
  checkpoint->read_f32("h", out);
  EXPECT_EQ(out, (std::vector<float>{1.0f, 0x1p-24f}));
  out.resize(1);
  checkpoint->read_f32("d", out);
  EXPECT_EQ(out[0], 0.1f);
  expect_error(ErrorCode::bad_input, {"'i'", "I32"}, [&] { checkpoint->read_f32("i", out); });
  expect_error(ErrorCode::bad_input, {"'h'", "2 elements"}, [&] { checkpoint->read_f32("h", out); });
}

}  // namespace
