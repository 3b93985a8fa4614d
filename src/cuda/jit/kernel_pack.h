// All kernels of one architecture in one file, built ahead of time, so that a first run compiles nothing.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/jit/compiler.h"
#include "cuda/jit/kernel_key.h"

namespace fourfold::cuda {

/// Digest of the sources of `specs` with all their headers, in whatever order they come. Pure; throws unsupported like
/// SourceTree::closure.
std::string sources_digest(const SourceTree& tree, std::span<const KernelSpec> specs);

/// Builds a pack in memory: adds, then writes once. Not thread-safe.
class KernelPackWriter {
 public:
  /// Every kernel of the pack is compiled for `target`. `tree` must outlive the writer.
  KernelPackWriter(const SourceTree& tree, KernelTarget target);
  /// Throws usage when the kernel is in it already, internal when `image` is empty.
  void add(const KernelSpec& spec, Image image);
  std::vector<std::byte> encode() const;
  /// Aside, fsync, rename. Throws bad_input when it cannot be written.
  void write(const std::filesystem::path& path) const;

 private:
  struct Added {
    KernelSpec spec;
    KernelKey key;
    Image image;
  };
  const SourceTree& tree_;
  KernelTarget target_;
  std::map<std::string, Added> kernels_;  // by instance text: equal kernels give equal files
};

/// A pack that was read and checked in full. Immutable, so reads are thread-safe; holds its images in memory.
class KernelPack {
 public:
  struct Kernel {
    KernelSpec spec;                     ///< source and macros only
    std::string key_digest;              ///< of the key it was built under
    std::string_view sources, instance;  ///< the parts of that key
    std::span<const std::byte> image;
  };
  KernelPack(KernelPack&&) = default;  // what views into the file sees stays where it is
  KernelPack& operator=(KernelPack&&) = default;

  /// Throws bad_input with the path and what is wrong with the file: missing, cut, changed, of another version.
  static KernelPack open(const std::filesystem::path& path);
  /// The same for bytes in memory; texts then have no path.
  static KernelPack decode(std::vector<std::byte> file);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// Of the file as it was read.
  std::uint64_t bytes() const noexcept { return file_.size(); }
  /// Architecture, options and compiler that every kernel was built with.
  const KernelTarget& target() const noexcept { return target_; }
  const std::string& sources_digest() const noexcept { return sources_digest_; }
  /// The instance list, in the order of the file.
  const std::vector<Kernel>& kernels() const noexcept { return kernels_; }

  /// Empty when the pack fits the program, or why it is stale: other sources, options or architecture than the
  /// program's. The compiler's version may differ: the images are what that compiler made of the same sources.
  std::string stale_reason(const SourceTree& tree, const std::string& architecture) const;
  /// The image whose key text is the one that `tree` gives; empty when there is none.
  std::optional<std::span<const std::byte>> find(const SourceTree& tree, const KernelSpec& spec) const;

 private:
  KernelPack() = default;
  std::filesystem::path path_;
  std::vector<std::byte> file_;
  KernelTarget target_;
  std::string sources_digest_;
  std::vector<Kernel> kernels_;
  std::map<std::string, std::size_t> by_digest_;  // of the key -> index in kernels_
};

/// "sm_90a" -> "sm_90a.pack".
std::string pack_file_name(const std::string& architecture);

/// Folders in which packs are looked for, in order: `kernel_dir` (FOURFOLD_KERNEL_DIR) unless empty, the folder of the
/// running program, and "kernels" in it.
std::vector<std::filesystem::path> pack_folders(const std::string& kernel_dir);

/// What the search for a pack gave.
struct PackSearch {
  std::optional<KernelPack> pack;
  std::vector<std::string> refused;  ///< one text per pack that is there and is not used: its path and why
};

/// The first good pack for `architecture` in `folders`. A stale or damaged one is refused, and the search goes on.
PackSearch find_pack(std::span<const std::filesystem::path> folders, const SourceTree& tree,
                     const std::string& architecture);

/// Why a search in `folders` gave no pack: those that were refused, or where none is. Pure.
std::string no_pack_reason(const PackSearch& search, std::span<const std::filesystem::path> folders,
                           const std::string& architecture);

}  // namespace fourfold::cuda
