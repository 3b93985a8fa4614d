// Writing and checking sealed files.
#include "cuda/jit/record.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/hash.h"

namespace fourfold::cuda {
namespace {

constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kDigestBytes = 32;  // hex digits of hash_hex

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

RecordWriter::RecordWriter(std::string_view magic) {
  check(magic.size() == kMagicBytes, ErrorCode::internal, "magic '{}' has {} characters, not {}", magic, magic.size(),
        kMagicBytes);
  append(magic.data(), magic.size());
}

void RecordWriter::append(const void* data, std::size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  file_.insert(file_.end(), begin, begin + size);
}

void RecordWriter::number(std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) file_.push_back(static_cast<std::byte>(value >> shift));
}

void RecordWriter::text(std::string_view value) {
  number(value.size());
  append(value.data(), value.size());
}

void RecordWriter::bytes(std::span<const std::byte> value) {
  number(value.size());
  append(value.data(), value.size());
}

std::vector<std::byte> RecordWriter::seal() {
  const std::string digest = hash_hex(file_.data(), file_.size());
  append(digest.data(), digest.size());
  return std::move(file_);
}

RecordReader::RecordReader(std::span<const std::byte> file, std::string_view magic) {
  check(file.size() >= kMagicBytes + kDigestBytes, ErrorCode::bad_input, "it has {} bytes; the shortest has {}",
        file.size(), kMagicBytes + kDigestBytes);
  const std::string_view found = as_text(file.first(kMagicBytes));
  // Not printed: it may be any bytes.
  check(found == magic, ErrorCode::bad_input, "it does not begin with '{}': another kind of file or version", magic);
  const std::span<const std::byte> sealed = file.first(file.size() - kDigestBytes);
  check(as_text(file.last(kDigestBytes)) == hash_hex(sealed.data(), sealed.size()), ErrorCode::bad_input,
        "its digest does not fit its {} bytes: it was cut or changed", file.size());
  rest_ = sealed.subspan(kMagicBytes);
}

std::span<const std::byte> RecordReader::take(std::uint64_t size) {
  check(size <= rest_.size(), ErrorCode::bad_input, "a field of {} bytes reaches beyond the {} that are left", size,
        rest_.size());
  const std::span<const std::byte> taken = rest_.first(static_cast<std::size_t>(size));
  rest_ = rest_.subspan(taken.size());
  return taken;
}

std::uint64_t RecordReader::number() {
  std::uint64_t value = 0;
  int shift = 0;
  for (const std::byte byte : take(8)) {
    value |= static_cast<std::uint64_t>(byte) << shift;
    shift += 8;
  }
  return value;
}

std::string_view RecordReader::text() { return as_text(bytes()); }

std::span<const std::byte> RecordReader::bytes() { return take(number()); }

std::size_t RecordReader::count(std::size_t least_bytes) {
  const std::uint64_t value = number();
  check(value <= rest_.size() / std::max<std::size_t>(least_bytes, 1), ErrorCode::bad_input,
        "{} items of at least {} bytes do not fit into the {} that are left", value, least_bytes, rest_.size());
  return static_cast<std::size_t>(value);
}

void RecordReader::finish() const {
  check(rest_.empty(), ErrorCode::bad_input, "{} bytes are left over after the last field", rest_.size());
}

}  // namespace fourfold::cuda
