// One file of the disk cache: a key text and an image, sealed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "cuda/jit/compiler.h"

namespace fourfold::cuda {

/// Name of an entry's file: its key's digest and this.
inline constexpr const char* kEntrySuffix = ".kernel";

struct Entry {
  std::string key_text;
  Image image;
};

/// The bytes of the file. Pure.
std::vector<std::byte> encode_entry(const Entry& entry);

/// Throws bad_input that says what is wrong, without a path. Pure.
Entry decode_entry(std::span<const std::byte> file);

/// Reads and decodes. Throws bad_input; also for a file of more than 256 MiB, which no kernel needs.
Entry read_entry_file(const std::filesystem::path& path);

}  // namespace fourfold::cuda
