// What identifies a compiled kernel: everything that can change its bytes, as one text that can be read back.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/jit/embedded_sources.h"
#include "plan/kernel_spec.h"

namespace fourfold::cuda {

/// A key text is a sequence of fields "name:length:value\n". Lengths make it injective: no value can imitate a field.
/// It comes in two parts, because many instances share one set of sources and a pack stores that only once.
struct KernelKey {
  std::string sources;   ///< the fields "file" (a name) and "text", in pairs, the kernel itself first
  std::string instance;  ///< the fields source, entry, macro and value (in pairs), option, architecture, compiler
  std::string digest;    ///< XXH3-128 of text(), 32 hex digits: names the file, never stands for the text

  std::string text() const { return sources + instance; }
  bool operator==(const KernelKey&) const = default;
};

/// Everything besides the kernel that its bytes depend on.
struct KernelTarget {
  std::string architecture;          ///< "sm_90a"
  std::vector<std::string> options;  ///< the compiler's, in order, without the architecture and the macros
  std::string compiler_version;      ///< "nvrtc 13.0"
  bool operator==(const KernelTarget&) const = default;
};

/// The key of `spec`. Pure. Throws unsupported when a source is missing, or a macro is no identifier, not ascending or
/// given twice. What a plan assumes of the result (registers, shared memory) changes no byte and is not part of it.
KernelKey kernel_key(const SourceTree& tree, const KernelSpec& spec, const KernelTarget& target);

/// The sources part for a closure. Pure.
std::string sources_text(std::span<const NamedSource> closure);

/// Name and value of every field of a key text or of a part of one, in order. Throws bad_input when `text` is none.
std::vector<std::pair<std::string, std::string>> key_fields(std::string_view text);

/// A key for people: one line per ingredient, source texts by length and digest. Throws bad_input like key_fields.
std::string describe_key(std::string_view text);

}  // namespace fourfold::cuda
