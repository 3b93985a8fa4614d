// Files for the checkpoint tests: folders that vanish, safetensors files written from parts, errors with their text.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fourfold/error.h"
#include "support/files.h"
#include "support/temporary_folder.h"

namespace fixture {

namespace fs = std::filesystem;

using support::read_bytes;
using support::TemporaryFolder;
using support::write_bytes;

inline std::string data_folder(const std::string& name) {
  return std::string(FOURFOLD_SOURCE_DIR "/tests/data/") + name;
}
inline std::string demo_folder() { return FOURFOLD_SOURCE_DIR "/models/moe-13m"; }

inline std::string length_word(std::uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i));
  return bytes;
}

struct RawTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

inline std::string safetensors_bytes(const RawTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  return length_word(text.size()) + text + data;
}

inline RawTensors load_raw(const std::string& path) {
  const std::string bytes = read_bytes(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  RawTensors tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry["data_offsets"][0].get<std::size_t>(), end = entry["data_offsets"][1].get<std::size_t>();
    tensors[name] = {entry["dtype"], entry["shape"], bytes.substr(8 + length + begin, end - begin)};
  }
  EXPECT_FALSE(tensors.empty()) << path;
  return tensors;
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

/// A copy of a tiny checkpoint with its tensors and config open to change.
struct Editable {
  explicit Editable(const std::string& source)
      : tensors(load_raw(source + "/model.safetensors")),
        config(nlohmann::json::parse(read_bytes(source + "/config.json"))) {}
  /// Writes it into `folder`.
  void save(const std::string& folder) const {
    fs::create_directories(folder);
    write_bytes(folder + "/model.safetensors", safetensors_bytes(tensors));
    write_bytes(folder + "/config.json", config.dump());
  }
  RawTensors tensors;
  nlohmann::json config;
};

/// Runs `action`; it must throw Error with `code` and a text that has every one of `words`.
template <class Action>
void expect_error(fourfold::ErrorCode code, std::initializer_list<std::string> words, Action action) {
  try {
    action();
  } catch (const fourfold::Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << "'" << word << "' not in: " << error.what();
    return;
  }
  ADD_FAILURE() << "no error was thrown";
}

}  // namespace fixture
