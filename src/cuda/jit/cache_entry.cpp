// Bytes of a cache entry.
#include "cuda/jit/cache_entry.h"

#include "core/check.h"
#include "core/file.h"
#include "cuda/jit/record.h"

namespace fourfold::cuda {
namespace {

constexpr const char* kMagic = "4FKERNL1";
constexpr std::uint64_t kMaxFileBytes = 256ull << 20;

}  // namespace

std::vector<std::byte> encode_entry(const Entry& entry) {
  RecordWriter writer(kMagic);
  writer.text(entry.key_text);
  writer.bytes(entry.image);
  return writer.seal();
}

Entry decode_entry(std::span<const std::byte> file) {
  RecordReader reader(file, kMagic);
  Entry entry;
  entry.key_text = reader.text();
  const std::span<const std::byte> image = reader.bytes();
  entry.image.assign(image.begin(), image.end());
  reader.finish();
  check(!entry.image.empty(), ErrorCode::bad_input, "it holds an empty image");
  return entry;
}

Entry read_entry_file(const std::filesystem::path& path) { return decode_entry(read_file(path, kMaxFileBytes)); }

}  // namespace fourfold::cuda
