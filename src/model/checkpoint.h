// The tensors of a checkpoint: a folder of safetensors files with or without an index, or one file.
// Source: Hugging Face sharded checkpoints (model.safetensors.index.json: "weight_map" from tensor to file).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fourfold/model.h"
#include "fourfold/tensor.h"
#include "model/safetensors.h"

namespace fourfold {

/// The bytes of one tensor: a view of the mapping, or an owned copy. The base is aligned to the element's size at
/// least, to 64 when it is a copy. A view into a mapping is valid as long as its Checkpoint.
class TensorBytes {
 public:
  TensorBytes() = default;
  TensorBytes(ConstTensorView view, std::shared_ptr<const void> owner) : view_(view), owner_(std::move(owner)) {}
  const ConstTensorView& view() const noexcept { return view_; }
  const std::byte* data() const noexcept { return static_cast<const std::byte*>(view_.data); }
  std::uint64_t size() const noexcept { return static_cast<std::uint64_t>(view_.bytes()); }
  DType dtype() const noexcept { return view_.dtype; }
  template <class T>
  const T* as() const noexcept {
    return static_cast<const T*>(view_.data);
  }

 private:
  ConstTensorView view_;
  std::shared_ptr<const void> owner_;
};

/// Immutable and thread-safe after open().
class Checkpoint {
 public:
  /// `path` is a folder or one .safetensors file. Every file's header and size is checked before anything is used;
  /// absent files and tensors are listed all at once. With an index, exactly the tensors that it names exist, each in
  /// the file that it names. Throws bad_input.
  static std::shared_ptr<const Checkpoint> open(const std::string& path, bool memory_map = true);
  const std::string& path() const noexcept { return path_; }
  /// False when `path` is a single file: there is no config beside it to read.
  bool is_folder() const noexcept { return is_folder_; }
  /// By name.
  const std::vector<TensorInfo>& tensors() const noexcept { return tensors_; }
  /// Null when there is none. The pointer is valid as long as this object.
  const TensorInfo* find(std::string_view name) const noexcept;
  bool contains(std::string_view name) const noexcept { return find(name) != nullptr; }
  /// Whether any tensor's name starts with `prefix`.
  bool contains_prefix(std::string_view prefix) const noexcept;
  /// find(), or bad_input naming the tensor and the checkpoint.
  const TensorInfo& require(std::string_view name) const;
  /// Throws bad_input with all absent names when one of `names` is absent.
  void require_all(std::span<const std::string> names) const;
  /// The tensor's bytes, see TensorBytes. Throws bad_input: absent, rank above kMaxRank, file shrunk since open().
  TensorBytes read(std::string_view name) const;
  /// Copies `out.size()` bytes of the tensor from its byte `offset` on. Throws bad_input.
  void read_range(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const;
  /// The tensor's bytes in the mapping (any alignment, no copy), or empty without one. Throws bad_input.
  std::span<const std::byte> mapped(std::string_view name) const;
  /// bf16, f16, f32 or f64 elements as fp32 (f64 rounds to nearest even). `out` has the tensor's element count. Throws
  /// bad_input for other dtypes and counts.
  void read_f32(std::string_view name, std::span<float> out) const;
  /// Files in name order, with their metadata.
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const noexcept { return files_; }

 private:
  struct Place {
    std::uint32_t file = 0, entry = 0;
  };
  const SafetensorsEntry& entry_of(const TensorInfo& info) const noexcept;
  const SafetensorsFile& file_of(const TensorInfo& info) const noexcept;
  std::string path_;
  bool is_folder_ = false;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<TensorInfo> tensors_;
  std::vector<Place> places_;  // parallel to tensors_
};

}  // namespace fourfold
