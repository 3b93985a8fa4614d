// Writing, checking and finding kernel packs.
//
// The file, sealed (record.h): architecture; number of options, options; compiler; digest of the sources; number of
// distinct source texts, texts; number of kernels; per kernel: source, number of macros, macros and values, index of
// its source text, instance text, digest of its key, digest of its image, image.
#include "cuda/jit/kernel_pack.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "cuda/jit/record.h"

namespace fourfold::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMagic = "4FPACK01";
constexpr std::uint64_t kMaxFileBytes = 1ull << 30;
constexpr std::size_t kFieldBytes = 8;  // the least that a field takes: its length

std::string digest_of(std::span<const std::byte> bytes) { return hash_hex(bytes.data(), bytes.size()); }
std::string digest_of(std::string_view text) { return hash_hex(text.data(), text.size()); }

KernelSpec read_spec(RecordReader& reader) {
  KernelSpec spec;
  spec.source = reader.text();
  const std::size_t macros = reader.count(2 * kFieldBytes);
  for (std::size_t i = 0; i < macros; ++i) {
    const std::string_view macro = reader.text();
    spec.defines.emplace_back(macro, reader.text());
  }
  return spec;
}

}  // namespace

std::string sources_digest(const SourceTree& tree, std::span<const KernelSpec> specs) {
  std::set<std::string> texts;
  for (const KernelSpec& spec : specs) texts.insert(sources_text(tree.closure(spec.source)));
  std::string all;
  for (const std::string& text : texts) all += fmt::format("{}:{}", text.size(), text);
  return digest_of(all);
}

// ---- writing ---------------------------------------------------------------------------------------------------

KernelPackWriter::KernelPackWriter(const SourceTree& tree, KernelTarget target)
    : tree_(tree), target_(std::move(target)) {}

void KernelPackWriter::add(const KernelSpec& spec, Image image) {
  check(!image.empty(), ErrorCode::internal, "kernel {} comes into a pack with an empty image", spec.name());
  KernelKey key = kernel_key(tree_, spec, target_);
  const std::string instance = key.instance;
  const bool added = kernels_.emplace(instance, Added{spec, std::move(key), std::move(image)}).second;
  check(added, ErrorCode::usage, "kernel {} is in the pack for {} already; name each once", spec.name(),
        target_.architecture);
}

std::vector<std::byte> KernelPackWriter::encode() const {
  std::map<std::string, std::uint64_t> source_index;
  std::vector<KernelSpec> specs;
  for (const auto& [instance, kernel] : kernels_) {
    source_index.emplace(kernel.key.sources, 0);
    specs.push_back(kernel.spec);
  }
  RecordWriter writer(kMagic);
  writer.text(target_.architecture);
  writer.number(target_.options.size());
  for (const std::string& option : target_.options) writer.text(option);
  writer.text(target_.compiler_version);
  writer.text(sources_digest(tree_, specs));
  writer.number(source_index.size());
  std::uint64_t next = 0;
  for (auto& [text, index] : source_index) {
    index = next++;
    writer.text(text);
  }
  writer.number(kernels_.size());
  for (const auto& [instance, kernel] : kernels_) {
    writer.text(kernel.spec.source);
    writer.number(kernel.spec.defines.size());
    for (const auto& [macro, value] : kernel.spec.defines) {
      writer.text(macro);
      writer.text(value);
    }
    writer.number(source_index.at(kernel.key.sources));
    writer.text(instance);
    writer.text(kernel.key.digest);
    writer.text(digest_of(kernel.image));
    writer.bytes(kernel.image);
  }
  return writer.seal();
}

void KernelPackWriter::write(const fs::path& path) const { write_file_atomically(path, encode()); }

// ---- reading ---------------------------------------------------------------------------------------------------

KernelPack KernelPack::decode(std::vector<std::byte> file) {
  KernelPack pack;
  pack.file_ = std::move(file);
  RecordReader reader(pack.file_, kMagic);
  pack.target_.architecture = reader.text();
  const std::size_t options = reader.count(kFieldBytes);
  for (std::size_t i = 0; i < options; ++i) pack.target_.options.emplace_back(reader.text());
  pack.target_.compiler_version = reader.text();
  pack.sources_digest_ = reader.text();
  std::vector<std::string_view> sources(reader.count(kFieldBytes));
  for (std::string_view& text : sources) text = reader.text();
  const std::size_t kernels = reader.count(7 * kFieldBytes);
  for (std::size_t i = 0; i < kernels; ++i) {
    Kernel kernel;
    kernel.spec = read_spec(reader);
    const std::uint64_t index = reader.number();
    check(index < sources.size(), ErrorCode::bad_input, "kernel {} has source text {} of {}", kernel.spec.name(), index,
          sources.size());
    kernel.sources = sources[index];
    kernel.instance = reader.text();
    kernel.key_digest = reader.text();
    check(kernel.key_digest == digest_of(std::string(kernel.sources).append(kernel.instance)), ErrorCode::bad_input,
          "the key of kernel {} does not fit its digest", kernel.spec.name());
    const std::string_view image_digest = reader.text();
    kernel.image = reader.bytes();
    check(!kernel.image.empty() && image_digest == digest_of(kernel.image), ErrorCode::bad_input,
          "the image of kernel {} does not fit its digest", kernel.spec.name());
    check(pack.by_digest_.emplace(kernel.key_digest, i).second, ErrorCode::bad_input, "kernel {} is in it twice",
          kernel.spec.name());
    pack.kernels_.push_back(std::move(kernel));
  }
  reader.finish();
  return pack;
}

KernelPack KernelPack::open(const fs::path& path) {
  std::vector<std::byte> bytes = read_file(path, kMaxFileBytes);
  try {
    KernelPack pack = decode(std::move(bytes));
    pack.path_ = path;
    return pack;
  } catch (const Error& error) {
    fail(ErrorCode::bad_input, "kernel pack '{}' is damaged: {}; build it again with 'fourfold kernels build'",
         path.string(), error.what());
  }
}

std::string KernelPack::stale_reason(const SourceTree& tree, const std::string& architecture) const {
  if (target_.architecture != architecture)
    return fmt::format("it is for {}, not for {}", target_.architecture, architecture);
  if (target_.options != compile_options())
    return fmt::format("it was compiled with the options {}; the program's are {}", fmt::join(target_.options, " "),
                       fmt::join(compile_options(), " "));
  std::vector<KernelSpec> specs;
  for (const Kernel& kernel : kernels_) specs.push_back(kernel.spec);
  try {
    const std::string now = fourfold::cuda::sources_digest(tree, specs);
    if (now != sources_digest_)
      return fmt::format("it was built from other sources (digest {}; the program's is {})", sources_digest_, now);
  } catch (const Error& error) {
    return fmt::format("it was built from other sources: {}", error.what());
  }
  return {};
}

std::optional<std::span<const std::byte>> KernelPack::find(const SourceTree& tree, const KernelSpec& spec) const {
  const KernelKey key = kernel_key(tree, spec, target_);
  const auto found = by_digest_.find(key.digest);
  if (found == by_digest_.end()) return std::nullopt;
  const Kernel& kernel = kernels_[found->second];
  if (kernel.sources != key.sources || kernel.instance != key.instance) return std::nullopt;
  return kernel.image;
}

// ---- finding ---------------------------------------------------------------------------------------------------

std::string pack_file_name(const std::string& architecture) { return architecture + ".pack"; }

std::vector<fs::path> pack_folders(const std::string& kernel_dir) {
  std::vector<fs::path> folders;
  if (!kernel_dir.empty()) folders.emplace_back(kernel_dir);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    folders.push_back(program.parent_path());
    folders.push_back(program.parent_path() / "kernels");
  }
  return folders;
}

PackSearch find_pack(std::span<const fs::path> folders, const SourceTree& tree, const std::string& architecture) {
  PackSearch search;
  for (const fs::path& folder : folders) {
    const fs::path path = folder / pack_file_name(architecture);
    std::error_code error;
    if (!fs::exists(path, error) && !error) continue;
    try {
      KernelPack pack = KernelPack::open(path);
      const std::string reason = pack.stale_reason(tree, architecture);
      if (reason.empty()) {
        search.pack.emplace(std::move(pack));
        return search;
      }
      search.refused.push_back(fmt::format(
          "kernel pack '{}' is stale: {}; build it again with 'fourfold kernels build'", path.string(), reason));
    } catch (const Error& failure) {
      search.refused.emplace_back(failure.what());
    }
  }
  return search;
}

std::string no_pack_reason(const PackSearch& search, std::span<const fs::path> folders,
                           const std::string& architecture) {
  if (!search.refused.empty()) return fmt::format("{}", fmt::join(search.refused, "; "));
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.string());
  return fmt::format("no kernel pack {} is in {}", pack_file_name(architecture),
                     names.empty() ? std::string("any folder") : fmt::format("{}", fmt::join(names, ", ")));
}

}  // namespace fourfold::cuda
