// The text of kernels/**, and which files a kernel consists of. Kernels are hermetic: they include nothing but kernels.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/jit/nvrtc_api.h"

namespace fourfold::cuda {

/// One file below kernels/: "moe/route.cu" and its text.
struct SourceFile {
  std::string_view path;
  std::string_view text;
};

/// Every file of kernels/ as it was at build time; the texts live as long as the program. Pure.
std::span<const SourceFile> embedded_files() noexcept;

/// Kernel sources by path. Immutable after construction, so reads are thread-safe. Holds views: the texts must outlive
/// it.
class SourceTree {
 public:
  /// Throws internal when two files have one path.
  explicit SourceTree(std::span<const SourceFile> files);
  /// The files of the program. Built once.
  static const SourceTree& embedded();

  std::vector<std::string_view> paths() const;
  /// Throws unsupported with the paths there are when `path` is none of them.
  std::string_view text(std::string_view path) const;

  /// What compiling `path` reads: the file itself first, then every header that quoted includes lead to, by name.
  /// Names are as they are written in the includes; each is a path below kernels/, with or without "kernels/" before
  /// it. An include counts even where the preprocessor would skip it. Throws unsupported when a header is missing, is
  /// included under two names (it would be read twice), or climbs with "..".
  std::vector<NamedSource> closure(std::string_view path) const;

 private:
  std::map<std::string, std::string_view, std::less<>> files_;
};

/// The targets of the quoted #include lines of `text`, in order, once each. Lines that begin inside a block comment are
/// skipped. Pure.
std::vector<std::string_view> quoted_includes(std::string_view text);

}  // namespace fourfold::cuda
