// Opening a checkpoint: all files checked, all absences collected, then one table of tensors by name.
#include "model/checkpoint.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <new>
#include <unordered_map>

#include "core/check.h"
#include "core/file.h"
#include "core/float16.h"
#include "model/json_text.h"
#include "model/message_text.h"

namespace fourfold {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCopyAlignment = 64;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

/// weight_map of the index: file to the tensors that it may contribute.
std::map<std::string, std::vector<std::string>> read_index(const std::string& path) {
  const nlohmann::json index = read_json(path);
  check(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), ErrorCode::bad_input,
        "{}: no object 'weight_map'; it maps tensor names to file names", path);
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [tensor, value] : index["weight_map"].items()) {
    check(value.is_string(), ErrorCode::bad_input, "{}: weight_map '{}' is {} instead of a file name", path, tensor,
          shown(value));
    const auto& file = value.get_ref<const std::string&>();
    // A name with a folder in it could reach any file of the machine.
    const bool plain =
        !file.empty() && file[0] != '.' && file.find('/') == std::string::npos && file.find('\\') == std::string::npos;
    check(plain, ErrorCode::bad_input,
          "{}: weight_map '{}' names {}; only plain file names beside the index are allowed", path, tensor,
          shown(value));
    files[file].push_back(tensor);
  }
  return files;
}

const SafetensorsEntry* find_entry(const SafetensorsFile& file, std::string_view name) {
  const auto& entries = file.header().entries;
  const auto at =
      std::lower_bound(entries.begin(), entries.end(), name,
                       [](const SafetensorsEntry& entry, std::string_view key) { return entry.name < key; });
  return at != entries.end() && at->name == name ? &*at : nullptr;
}

std::shared_ptr<std::byte> aligned_bytes(std::uint64_t bytes) {
  const std::size_t rounded = (bytes / kCopyAlignment + 1) * kCopyAlignment;
  void* memory = std::aligned_alloc(kCopyAlignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

}  // namespace

std::shared_ptr<const Checkpoint> Checkpoint::open(const std::string& path, bool memory_map) {
  auto checkpoint = std::shared_ptr<Checkpoint>(new Checkpoint());
  checkpoint->path_ = path;
  std::error_code ignored;
  checkpoint->is_folder_ = fs::is_directory(path, ignored);
  const fs::path folder = checkpoint->is_folder_ ? fs::path(path) : fs::path(path).parent_path();
  std::map<std::string, std::vector<std::string>> allowed;  // file -> tensors; only with an index
  const bool indexed = checkpoint->is_folder_ && fs::exists(folder / kIndexName, ignored);
  if (indexed) {
    allowed = read_index((folder / kIndexName).string());
  } else {
    const std::string name = checkpoint->is_folder_ ? kSingleName : fs::path(path).filename().string();
    check(fs::exists(folder / name, ignored), ErrorCode::bad_input, "{}: {}", path,
          checkpoint->is_folder_ ? "the folder has neither model.safetensors.index.json nor model.safetensors"
                                 : "no such file or folder");
    allowed[name] = {};
  }

  std::vector<std::string> absent;
  for (const auto& [name, tensors] : allowed)
    if (!fs::exists(folder / name, ignored)) absent.push_back(name);
  check(absent.empty(), ErrorCode::bad_input, "{}: files that the index names are absent: {}", path, listed(absent));

  std::vector<std::string> names;
  for (const auto& [name, tensors] : allowed) {
    checkpoint->files_.push_back(SafetensorsFile::open((folder / name).string(), memory_map));
    names.push_back(name);
  }

  struct Found {
    TensorInfo info;
    Place place;
  };
  std::vector<Found> found;
  std::unordered_map<std::string_view, std::size_t> owner;  // tensor -> file, as the index says
  for (std::size_t f = 0; f < names.size(); ++f) {
    const SafetensorsFile& file = *checkpoint->files_[f];
    const auto add = [&](const SafetensorsEntry& entry) {
      const auto index = static_cast<std::uint32_t>(&entry - file.header().entries.data());
      found.push_back(
          {{entry.name, names[f], entry.dtype, entry.shape, entry.bytes()}, {static_cast<std::uint32_t>(f), index}});
    };
    if (!indexed) {
      for (const SafetensorsEntry& entry : file.header().entries) add(entry);
      continue;
    }
    for (const std::string& tensor : allowed[names[f]]) {
      if (const SafetensorsEntry* entry = find_entry(file, tensor))
        add(*entry);
      else
        absent.push_back(tensor + " (" + names[f] + ")");
      owner.emplace(tensor, f);
    }
  }
  for (std::size_t f = 0; indexed && f < names.size(); ++f)
    for (const SafetensorsEntry& entry : checkpoint->files_[f]->header().entries) {
      const auto at = owner.find(entry.name);
      check(at == owner.end() || at->second == f, ErrorCode::bad_input,
            "{}: tensor '{}' is in {} as the index says, but also in {}", path, entry.name,
            at == owner.end() ? "" : names[at->second], names[f]);
    }
  check(absent.empty(), ErrorCode::bad_input, "{}: tensors that the index names are absent from their files: {}", path,
        listed(absent));
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.info.name < b.info.name; });
  checkpoint->tensors_.reserve(found.size());
  checkpoint->places_.reserve(found.size());
  for (Found& each : found) {
    checkpoint->tensors_.push_back(std::move(each.info));
    checkpoint->places_.push_back(each.place);
  }
  return checkpoint;
}

const TensorInfo* Checkpoint::find(std::string_view name) const noexcept {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const TensorInfo& info, std::string_view key) { return info.name < key; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

bool Checkpoint::contains_prefix(std::string_view prefix) const noexcept {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), prefix,
                                   [](const TensorInfo& info, std::string_view key) { return info.name < key; });
  return at != tensors_.end() && at->name.starts_with(prefix);
}

const TensorInfo& Checkpoint::require(std::string_view name) const {
  const TensorInfo* info = find(name);
  check(info != nullptr, ErrorCode::bad_input, "{}: tensor '{}' is absent; {} tensors are there", path_, name,
        tensors_.size());
  return *info;
}

void Checkpoint::require_all(std::span<const std::string> names) const {
  std::vector<std::string> absent;
  for (const std::string& name : names)
    if (!contains(name)) absent.push_back(name);
  check(absent.empty(), ErrorCode::bad_input, "{}: tensors are absent: {}", path_, listed(absent));
}

const SafetensorsFile& Checkpoint::file_of(const TensorInfo& info) const noexcept {
  return *files_[places_[static_cast<std::size_t>(&info - tensors_.data())].file];
}

const SafetensorsEntry& Checkpoint::entry_of(const TensorInfo& info) const noexcept {
  const Place place = places_[static_cast<std::size_t>(&info - tensors_.data())];
  return files_[place.file]->header().entries[place.entry];
}

TensorBytes Checkpoint::read(std::string_view name) const {
  const TensorInfo& info = require(name);
  check(info.shape.size() <= static_cast<std::size_t>(kMaxRank), ErrorCode::bad_input,
        "{}: tensor '{}' has {} axes; at most {} can be used", path_, name, info.shape.size(), kMaxRank);
  ConstTensorView view;
  view.dtype = info.dtype;
  view.rank = static_cast<int>(info.shape.size());
  std::copy(info.shape.begin(), info.shape.end(), view.shape.begin());
  const std::size_t alignment = std::max<std::size_t>(1, static_cast<std::size_t>(dtype_bits(info.dtype)) / 8);
  const std::span<const std::byte> bytes = file_of(info).mapped(entry_of(info));
  if (!bytes.empty() && reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment == 0) {
    view.data = bytes.data();
    return {view, nullptr};
  }
  const std::shared_ptr<std::byte> copy = aligned_bytes(info.bytes);
  file_of(info).read(entry_of(info), 0, {copy.get(), info.bytes});
  view.data = copy.get();
  return {view, copy};
}

void Checkpoint::read_range(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const {
  const TensorInfo& info = require(name);
  file_of(info).read(entry_of(info), offset, out);
}

std::span<const std::byte> Checkpoint::mapped(std::string_view name) const {
  const TensorInfo& info = require(name);
  return file_of(info).mapped(entry_of(info));
}

void Checkpoint::read_f32(std::string_view name, std::span<float> out) const {
  const TensorBytes tensor = read(name);
  check(tensor.view().elements() == static_cast<std::int64_t>(out.size()), ErrorCode::bad_input,
        "{}: tensor '{}' has {} elements instead of {}", path_, name, tensor.view().elements(), out.size());
  switch (tensor.dtype()) {
    case DType::f32:
      if (!out.empty()) std::memcpy(out.data(), tensor.data(), out.size_bytes());
      return;
    case DType::bf16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_float(tensor.as<std::uint16_t>()[i]);
      return;
    case DType::f16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = f16_to_float(tensor.as<std::uint16_t>()[i]);
      return;
    case DType::f64:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(tensor.as<double>()[i]);
      return;
    default:
      fail(ErrorCode::bad_input, "{}: tensor '{}' has dtype {}; expected is BF16, F16, F32 or F64", path_, name,
           dtype_name(tensor.dtype()));
  }
}

}  // namespace fourfold
