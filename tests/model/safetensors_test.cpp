// Safetensors files, good and bad: the table of malformed and extreme files, both read modes, cut files, big headers.
#include "model/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>

#include "checkpoint_fixture.h"

namespace {

using namespace fixture;
using fourfold::ErrorCode;
using fourfold::parse_safetensors_header;
using fourfold::SafetensorsEntry;
using fourfold::SafetensorsFile;

std::string entry(const std::string& name, const std::string& shape, const std::string& offsets,
                  const std::string& dtype = "F32") {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string object(const std::string& inside) { return "{" + inside + "}"; }
std::string file_of(const std::string& header, std::size_t data) {
  return length_word(header.size()) + header + std::string(data, '\x11');
}

struct Case {
  std::string id, bytes;
  bool accepted;
  std::size_t tensors = 0;
  std::string word;  // of the message when refused
};

const std::string kA = entry("a", "[2]", "[0,8]");

std::vector<Case> cases() {
  const std::string good = file_of(object(kA), 8);
  const auto with_length = [&](std::uint64_t length) { return length_word(length) + good.substr(8); };
  const auto two = [&](const std::string& a, const std::string& b, std::size_t data) {
    return file_of(object(a + "," + b), data);
  };
  return {
      {"A01", "", false, 0, "length word"},
      {"A02", std::string(7, '\0'), false, 0, "length word"},
      {"A03", length_word(0), false, 0, "not JSON"},
      {"A04", file_of("{}", 0), true, 0, ""},
      {"A05", with_length(~0ull), false, 0, "limit"},
      {"A06", with_length(~0ull - 7), false, 0, "limit"},
      {"A07", with_length(100000001), false, 0, "limit of 100000000"},
      {"A08", with_length(good.size() - 16 + 1000), false, 0, "past the end"},
      {"A09", file_of("\xff\xfe", 0), false, 0, "UTF-8"},
      {"A10", file_of(R"({"a":)", 0), false, 0, "not JSON"},
      {"A11", file_of("[]", 0), false, 0, "instead of a JSON object"},
      {"A12", good.substr(0, good.size() - 1), false, 0, "cover 8 bytes"},
      {"A13", good + "x", false, 0, "cover 8 bytes"},
      {"A14", two(kA, entry("b", "[2]", "[4,12]"), 12), false, 0, "'b'"},
      {"A15", two(kA, entry("b", "[2]", "[0,8]"), 8), false, 0, "'b'"},
      {"A16", two(kA, entry("b", "[2]", "[12,20]"), 20), false, 0, "'b'"},
      {"A17", file_of(object(entry("a", "[2]", "[4,12]")), 12), false, 0, "'a'"},
      {"A18", file_of(object(entry("a", "[2]", "[8,0]")), 8), false, 0, "'a'"},
      {"A19", file_of(object(entry("a", "[2]", "[-1,8]")), 8), false, 0, "data_offsets"},
      {"A20", file_of(object(entry("a", "[2]", "[0,8,8]")), 8), false, 0, "data_offsets"},
      {"A21", file_of(object(entry("a", "[-2]", "[0,8]")), 8), false, 0, "unsigned"},
      {"A22", file_of(object(entry("a", "[2.0]", "[0,8]")), 8), false, 0, "unsigned"},
      {"A23", file_of(object(entry("a", "[32,8]", "[0,65536]")), 65536), false, 0, "need 1024"},
      {"A24", file_of(object(entry("a", "[2]", "[0,8]", "Q4_X")), 8), false, 0, "Q4_X"},
      {"A25", two(kA, kA, 8), false, 0, "twice"},
      {"A26", two(kA, entry("a", "[2]", "[8,16]"), 16), false, 0, "'a'"},
      {"A27", two(kA, entry("z", "[0]", "[8,8]"), 8), true, 2, ""},
      {"A28", two(kA, entry("z", "[0]", "[99,99]"), 8), false, 0, "'z'"},
      {"A29", file_of(object(entry("a", "[1]", "[0,0]")), 0), false, 0, "need 4"},
      {"A30", file_of(object(entry("a", "[]", "[0,4]")), 4), true, 1, ""},
      {"A31", two(entry("b", "[2]", "[8,16]"), kA, 16), true, 2, ""},
      {"A32", two(entry("a", "[3]", "[0,3]", "U8"), entry("b", "[2]", "[3,11]"), 11), true, 2, ""},
      {"A33", file_of(object(kA) + " ", 8), true, 1, ""},
      {"A34", file_of(object(entry("a", "[3]", "[0,2]", "F4")), 2), false, 0, "whole bytes"},
      {"A35", file_of(object(entry("a", "[2]", "[0,2]", "F8_E8M0")), 2), true, 1, ""},
      {"A36", file_of(object(R"("__metadata__":{"n":1},)" + kA), 8), false, 0, "metadata"},
      // Beyond the table: what the JSON library would let through, and sizes that overflow.
      {"B01", file_of(object(kA) + std::string("\0x", 2), 8), false, 0, "NUL"},
      {"B02", file_of("\xef\xbb\xbf" + object(kA), 8), false, 0, "byte order mark"},
      {"B03", file_of(object(entry("a", "[4294967296,4294967296]", "[0,8]")), 8), false, 0, "'a'"},
      {"B04", file_of(object(entry("a", "[18446744073709551615]", "[0,8]")), 8), false, 0, "2^63"},
      {"B05", file_of(object(kA) + "{}", 8), false, 0, "not JSON"},
      {"B06", file_of(object(R"("a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 8), false, 0,
       "twice"},
      {"B07", file_of(object(R"("a":{"dtype":"F32","shape":[2]})"), 8), false, 0, "lacks"},
      {"B08", file_of(object(R"("a":[1])"), 8), false, 0, "instead of an object"},
      {"B09",
       file_of(object(R"("__metadata__":{"k":"v"},"a":{"dtype":"F32","more":{"x":[1,"y",null]},)"
                      R"("shape":[2],"data_offsets":[0,8]})"),
               8),
       true, 1, ""},
      {"B10", file_of(object(R"("a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})"), 8), false, 0, "'a'"},
      {"B11", file_of(object(R"("__metadata__":{},"__metadata__":{},)" + kA), 8), false, 0, "twice"},
  };
}

TEST(Safetensors, EveryMalformedOrExtremeFileHasItsVerdictInBothReadModes) {
  const TemporaryFolder folder;
  int accepted = 0, refused = 0;
  for (const Case& each : cases())
    for (bool memory_map : {true, false}) {
      SCOPED_TRACE(each.id + (memory_map ? " mapped" : " read"));
      const std::string path = folder / (each.id + ".safetensors");
      write_bytes(path, each.bytes);
      if (each.accepted) {
        ++accepted;
        const auto file = SafetensorsFile::open(path, memory_map);
        EXPECT_EQ(file->header().entries.size(), each.tensors);
        for (const SafetensorsEntry& tensor : file->header().entries) {
          std::string bytes(tensor.bytes(), '\0');
          file->read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
          EXPECT_EQ(bytes, std::string(tensor.bytes(), '\x11'));
        }
      } else {
        ++refused;
        expect_error(ErrorCode::bad_input, {each.id + ".safetensors", each.word},
                     [&] { SafetensorsFile::open(path, memory_map); });
      }
    }
  EXPECT_EQ(accepted, 2 * 8);
  EXPECT_EQ(refused, 2 * 39);
}

TEST(Safetensors, ADeeplyNestedHeaderIsAnErrorAndNoOverflow) {
  const std::string deep = R"({"a":{"x":)" + std::string(2'000'000, '[');
  const std::string bytes = file_of(deep, 0);
  expect_error(ErrorCode::bad_input, {"not JSON"},
               [&] { parse_safetensors_header(std::as_bytes(std::span(bytes)), bytes.size(), "deep"); });
}

TEST(Safetensors, TheHeaderLimitHoldsOnBothSides) {
  const std::string bytes = file_of("{}" + std::string(98, ' '), 0);
  const auto all = std::as_bytes(std::span(bytes));
  EXPECT_TRUE(parse_safetensors_header(all, bytes.size(), "f", 100).entries.empty());
  expect_error(ErrorCode::bad_input, {"limit of 99"}, [&] { parse_safetensors_header(all, bytes.size(), "f", 99); });
}

TEST(Safetensors, TheDefaultLimitIsAHundredMillionBytes) {
  const TemporaryFolder folder;
  for (std::uint64_t length : {100'000'000ull, 100'000'001ull}) {
    const std::string path = folder / "sparse.safetensors";
    write_bytes(path, length_word(length));
    fs::resize_file(path, 8 + length);  // a hole: the header reads as NUL bytes
    expect_error(ErrorCode::bad_input, {length == 100'000'000 ? "NUL" : "limit"},
                 [&] { SafetensorsFile::open(path, false); });
  }
}

TEST(Safetensors, AMillionTensorsParseWithinSeconds) {
  constexpr std::size_t kTensors = 1'000'000;
  std::string header = "{";
  for (std::size_t i = 0; i < kTensors; ++i) {
    std::string offsets = "[" + std::to_string(i);
    offsets += "," + std::to_string(i + 1) + "]";
    if (i != 0) header += ',';
    header += entry("t" + std::to_string(i), "[]", offsets, "U8");
  }
  header += "}";
  const std::string prefix = length_word(header.size()) + header;
  const auto start = std::chrono::steady_clock::now();
  const auto parsed = parse_safetensors_header(std::as_bytes(std::span(prefix)), prefix.size() + kTensors, "million");
  EXPECT_EQ(parsed.entries.size(), kTensors);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

/// A file of exactly 65,536 bytes: four tensors, and the header padded to fit.
std::string four_tensors_of_64_kib() {
  constexpr std::size_t kEach = 16000;
  std::string header = "{";
  for (std::size_t i = 0; i < 4; ++i)
    header += (i == 0 ? "" : ",") + entry(std::string(1, static_cast<char>('a' + i)), "[" + std::to_string(kEach) + "]",
                                          "[" + std::to_string(i * kEach) + "," + std::to_string((i + 1) * kEach) + "]",
                                          "U8");
  header += "}";
  header.resize(65536 - 8 - 4 * kEach, ' ');
  return file_of(header, 4 * kEach);
}

TEST(Safetensors, ACutFileIsRefusedAtEveryLength) {
  const TemporaryFolder folder;
  const std::string bytes = four_tensors_of_64_kib();
  int refused = 0;
  std::vector<std::size_t> cuts{1, 7, 8, 9, 100, bytes.size() - 1};
  for (std::size_t cut = 0; cut < bytes.size(); cut += 4096) cuts.push_back(cut);
  for (std::size_t cut : cuts)
    for (bool memory_map : {true, false}) {
      write_bytes(folder / "cut.safetensors", bytes.substr(0, cut));
      expect_error(ErrorCode::bad_input, {"cut.safetensors"},
                   [&] { SafetensorsFile::open(folder / "cut.safetensors", memory_map); });
      ++refused;
    }
  EXPECT_GE(refused, 2 * 22);
}

TEST(Safetensors, AFileThatShrinksAfterOpenIsAnErrorInBothReadModes) {
  const TemporaryFolder folder;
  for (bool memory_map : {true, false}) {
    const std::string path = folder / "shrinks.safetensors";
    write_bytes(path, four_tensors_of_64_kib());
    const auto file = SafetensorsFile::open(path, memory_map);
    fs::resize_file(path, 30000);
    const SafetensorsEntry& last = file->header().entries[3];
    std::vector<std::byte> bytes(last.bytes());
    expect_error(ErrorCode::bad_input, {"shrinks.safetensors"}, [&] { file->read(last, 0, bytes); });
    if (memory_map) expect_error(ErrorCode::bad_input, {"shrinks.safetensors"}, [&] { file->mapped(last); });
    file->read(file->header().entries[0], 0, std::span(bytes).first(100));  // what is still there can be read
  }
}

TEST(Safetensors, ReadingPastATensorIsAnError) {
  const TemporaryFolder folder;
  write_bytes(folder / "one.safetensors", file_of(object(kA), 8));
  const auto file = SafetensorsFile::open(folder / "one.safetensors", true);
  std::vector<std::byte> bytes(9);
  const SafetensorsEntry& tensor = file->header().entries[0];
  expect_error(ErrorCode::bad_input, {"'a'", "9 bytes"}, [&] { file->read(tensor, 0, bytes); });
  expect_error(ErrorCode::bad_input, {"'a'"}, [&] { file->read(tensor, ~0ull, std::span(bytes).first(1)); });
}

}  // namespace
