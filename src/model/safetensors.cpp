// Parsing and reading of one safetensors file. The rules are the reference reader's, stricter in one point: a duplicate
// name is refused even when both entries agree.
#include "model/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "model/message_text.h"

namespace fourfold {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;

/// Offset of the first byte that is not well-formed UTF-8 (Unicode 15, table 3-7), or the size.
std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
    const unsigned char lead = byte(0);
    std::size_t length = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : 4;
    if (length == 4 && (lead < 0xf0 || lead > 0xf4)) return at;
    if (at + length > text.size()) return at;
    for (std::size_t i = 1; i < length; ++i)
      if ((byte(i) & 0xc0) != 0x80) return at;
    const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
    const bool outside = (lead == 0xed && byte(1) >= 0xa0) || (lead == 0xf4 && byte(1) >= 0x90);
    if (length > 1 && (overlong || outside)) return at;
    at += length;
  }
  return at;
}

/// Receives the header's JSON piece by piece, so that neither depth nor size of the text costs memory of its own, and a
/// duplicate key is seen.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(std::string_view file, SafetensorsHeader& header) : file_(file), header_(header) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t value) override { return other(fmt::format("the number {}", value)); }
  bool number_float(number_float_t, const string_t& text) override { return other("the number " + shown_name(text)); }
  bool binary(binary_t&) override { return other("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (skipped_depth_ > 0 || field_ == Field::ignored) return ignore();
    if (place_ == Place::list && field_ == Field::shape) {
      check(value <= INT64_MAX, ErrorCode::bad_input, "{}: tensor '{}': shape entry {} is not below 2^63", file_,
            shown_name(entry_.name), value);
      entry_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::list && field_ == Field::offsets) {
      if (offsets_seen_ < 2) (offsets_seen_ == 0 ? entry_.begin : entry_.end) = value;
      ++offsets_seen_;
      return true;
    }
    return other(fmt::format("the number {}", value));
  }

  bool string(string_t& value) override {
    if (skipped_depth_ > 0 || field_ == Field::ignored) return ignore();
    if (place_ == Place::metadata) {
      check(header_.metadata.emplace(key_, std::move(value)).second, ErrorCode::bad_input,
            "{}: metadata key '{}' appears twice", file_, shown_name(key_));
      return true;
    }
    if (place_ == Place::entry && field_ == Field::dtype) {
      const std::optional<DType> dtype = dtype_from_name(value);
      check(dtype.has_value(), ErrorCode::bad_input,
            "{}: tensor '{}': dtype '{}' is unknown; known are BOOL, U8, I8, F8_E4M3, F8_E5M2, F8_E8M0, F4, I16, U16, "
            "F16, BF16, I32, U32, F32, I64, U64 and F64",
            file_, shown_name(entry_.name), shown_name(value));
      entry_.dtype = *dtype;
      return true;
    }
    return other("a string");
  }

  bool start_object(std::size_t) override {
    if (skipped_depth_ > 0 || field_ == Field::ignored) return ++skipped_depth_, true;
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = key_ == "__metadata__" ? Place::metadata : Place::entry;
      if (place_ == Place::metadata) {
        check(!metadata_seen_, ErrorCode::bad_input, "{}: key '__metadata__' appears twice", file_);
        metadata_seen_ = true;
      }
      entry_ = {};
      entry_.name = key_;
      fields_seen_ = 0;
      field_ = Field::none;
    } else {
      return other("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (skipped_depth_ > 0) return true;
    key_ = std::move(value);
    if (place_ != Place::entry) return true;
    field_ = key_ == "dtype"          ? Field::dtype
             : key_ == "shape"        ? Field::shape
             : key_ == "data_offsets" ? Field::offsets
                                      : Field::ignored;
    if (field_ == Field::ignored) return true;
    const unsigned bit = 1u << static_cast<unsigned>(field_);
    check((fields_seen_ & bit) == 0, ErrorCode::bad_input, "{}: tensor '{}': '{}' appears twice", file_,
          shown_name(entry_.name), key_);
    fields_seen_ |= bit;
    offsets_seen_ = 0;
    return true;
  }

  bool end_object() override {
    if (skipped_depth_ > 0) return close_skipped();
    if (place_ == Place::entry) {
      check(fields_seen_ == kAllFields, ErrorCode::bad_input,
            "{}: tensor '{}' lacks one of 'dtype', 'shape' and 'data_offsets'", file_, shown_name(entry_.name));
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    field_ = Field::none;
    return true;
  }

  bool start_array(std::size_t) override {
    if (skipped_depth_ > 0 || field_ == Field::ignored) return ++skipped_depth_, true;
    if (place_ != Place::entry || (field_ != Field::shape && field_ != Field::offsets)) return other("an array");
    place_ = Place::list;
    return true;
  }

  bool end_array() override {
    if (skipped_depth_ > 0) return close_skipped();
    check(field_ != Field::offsets || offsets_seen_ == 2, ErrorCode::bad_input,
          "{}: tensor '{}': 'data_offsets' has {} numbers instead of 2", file_, shown_name(entry_.name), offsets_seen_);
    place_ = Place::entry;
    field_ = Field::none;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    fail(ErrorCode::bad_input, "{}: the header is not JSON, at its byte {}: {}", file_, position,
         shown_name(error.what()));
  }

 private:
  enum class Place { outside, top, metadata, entry, list };
  enum class Field { none, dtype, shape, offsets, ignored };
  static constexpr unsigned kAllFields = 1u << 1 | 1u << 2 | 1u << 3;

  bool ignore() {
    if (skipped_depth_ == 0) field_ = Field::none;
    return true;
  }
  bool close_skipped() {
    --skipped_depth_;
    return ignore();
  }
  /// A value of a kind that never fits, or not here.
  bool other(const std::string& kind) {
    if (skipped_depth_ > 0 || field_ == Field::ignored) return ignore();
    switch (place_) {
      case Place::outside:
        fail(ErrorCode::bad_input, "{}: the header is {} instead of a JSON object", file_, kind);
      case Place::top:
        fail(ErrorCode::bad_input, "{}: '{}' is {} instead of an object", file_, shown_name(key_), kind);
      case Place::metadata:
        fail(ErrorCode::bad_input, "{}: metadata '{}' is {} instead of a string", file_, shown_name(key_), kind);
      default:
        fail(ErrorCode::bad_input, "{}: tensor '{}': '{}' holds {}; expected is {}", file_, shown_name(entry_.name),
             shown_name(key_), kind,
             field_ == Field::dtype   ? "a string"
             : field_ == Field::shape ? "an array of unsigned integers"
                                      : "an array of two unsigned integers");
    }
  }

  std::string file_;
  SafetensorsHeader& header_;
  Place place_ = Place::outside;
  Field field_ = Field::none;
  std::string key_;
  SafetensorsEntry entry_;
  unsigned fields_seen_ = 0;
  int offsets_seen_ = 0;
  std::uint64_t skipped_depth_ = 0;
  bool metadata_seen_ = false;
};

/// The length word, checked against the file's size and the cap.
std::uint64_t header_length(std::span<const std::byte> prefix, std::uint64_t file_size, std::string_view file,
                            std::uint64_t max_header_bytes) {
  check(file_size >= kLengthBytes && prefix.size() >= kLengthBytes, ErrorCode::bad_input,
        "{}: {} bytes is shorter than the 8 bytes of a safetensors length word", file, file_size);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<std::uint64_t>(prefix[i]) << (8 * i);
  check(length <= max_header_bytes, ErrorCode::bad_input,
        "{}: header length {} is above the limit of {} bytes; is this a safetensors file?", file, length,
        max_header_bytes);
  check(length <= file_size - kLengthBytes, ErrorCode::bad_input,
        "{}: header length {} reaches past the end of the file of {} bytes; the file is cut short", file, length,
        file_size);
  return length;
}

/// Bytes that dtype and shape ask for.
std::uint64_t expected_bytes(const SafetensorsEntry& entry, const std::string& where) {
  std::int64_t elements = 1;
  for (std::int64_t extent : entry.shape) elements = checked_mul(elements, extent, where.c_str(), ErrorCode::bad_input);
  const std::int64_t bits = checked_mul(elements, dtype_bits(entry.dtype), where.c_str(), ErrorCode::bad_input);
  check(bits % 8 == 0, ErrorCode::bad_input, "{}: {} elements of {} do not fill whole bytes", where, elements,
        dtype_name(entry.dtype));
  return static_cast<std::uint64_t>(bits / 8);
}

/// Sorted, the ranges start at 0, touch, and end at `data_bytes`; each has the size of its shape.
void check_ranges(const SafetensorsHeader& header, std::uint64_t data_bytes, std::string_view file) {
  std::vector<std::uint32_t> order(header.entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const SafetensorsEntry &x = header.entries[a], &y = header.entries[b];
    return std::tie(x.begin, x.end, x.name) < std::tie(y.begin, y.end, y.name);
  });
  std::uint64_t at = 0;
  for (std::uint32_t index : order) {
    const SafetensorsEntry& entry = header.entries[index];
    check(entry.begin == at && entry.end >= entry.begin, ErrorCode::bad_input,
          "{}: tensor '{}': data_offsets [{}, {}] should start at {}, where the tensor before it ends, and not end "
          "before "
          "that",
          file, shown_name(entry.name), entry.begin, entry.end, at);
    const std::uint64_t expected = expected_bytes(entry, fmt::format("{}: tensor '{}'", file, shown_name(entry.name)));
    check(expected == entry.bytes(), ErrorCode::bad_input,
          "{}: tensor '{}': data_offsets [{}, {}] hold {} bytes, but its shape and dtype {} need {}", file,
          shown_name(entry.name), entry.begin, entry.end, entry.bytes(), dtype_name(entry.dtype), expected);
    at = entry.end;
  }
  check(at == data_bytes, ErrorCode::bad_input, "{}: the tensors cover {} bytes of data, but the file has {}; it is {}",
        file, at, data_bytes, data_bytes < at ? "cut short" : "longer than its header says");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> prefix, std::uint64_t file_size,
                                           std::string_view file, std::uint64_t max_header_bytes) {
  const std::uint64_t length = header_length(prefix, file_size, file, max_header_bytes);
  check(prefix.size() - kLengthBytes >= length, ErrorCode::bad_input, "{}: {} bytes of the header of {} are there",
        file, prefix.size() - kLengthBytes, length);
  const std::string_view text(reinterpret_cast<const char*>(prefix.data()) + kLengthBytes, length);
  const std::size_t valid = valid_utf8_prefix(text);
  check(valid == text.size(), ErrorCode::bad_input, "{}: the header is not UTF-8, at its byte {}", file, valid);
  // The JSON library takes a NUL for the end of the text and skips a byte order mark; a header has neither.
  check(text.find('\0') == std::string_view::npos && !text.starts_with("\xef\xbb\xbf"), ErrorCode::bad_input,
        "{}: the header is not JSON: it holds a NUL byte or starts with a byte order mark", file);
  SafetensorsHeader header;
  header.data_start = kLengthBytes + length;
  HeaderReader reader(file, header);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &reader);
  check(parsed, ErrorCode::bad_input, "{}: the header is not JSON", file);
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.name < b.name; });
  const auto twin = std::adjacent_find(header.entries.begin(), header.entries.end(),
                                       [](const auto& a, const auto& b) { return a.name == b.name; });
  check(twin == header.entries.end(), ErrorCode::bad_input, "{}: tensor '{}' appears twice in the header", file,
        twin == header.entries.end() ? "" : shown_name(twin->name));
  check_ranges(header, file_size - header.data_start, file);
  return header;
}

std::unique_ptr<SafetensorsFile> SafetensorsFile::open(const std::string& path, bool memory_map,
                                                       std::uint64_t max_header_bytes) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->path_ = path;
  file->input_ = std::make_unique<InputFile>(InputFile::open(path));
  file->file_size_ = file->input_->size();
  std::vector<std::byte> prefix(std::min(file->file_size_, kLengthBytes));
  file->input_->read_at(0, prefix);
  const std::uint64_t length = header_length(prefix, file->file_size_, path, max_header_bytes);
  prefix.resize(kLengthBytes + length);
  file->input_->read_at(kLengthBytes, std::span(prefix).subspan(kLengthBytes));
  file->header_ = parse_safetensors_header(prefix, file->file_size_, path, max_header_bytes);
  if (memory_map) {
    file->mapping_ = std::make_unique<MappedFile>(MappedFile::open(path));
    check(file->mapping_->size() == file->file_size_, ErrorCode::bad_input,
          "{}: the size changed from {} to {} bytes while it was opened", path, file->file_size_,
          file->mapping_->size());
  }
  return file;
}

SafetensorsFile::~SafetensorsFile() = default;

void SafetensorsFile::check_not_shrunk(const SafetensorsEntry& entry) const {
  // A page of a mapping past the file's end is a signal, not an error: ask the file first. Reading the last byte fails
  // when the file has become shorter.
  std::byte last{};
  if (entry.bytes() != 0) input_->read_at(header_.data_start + entry.end - 1, {&last, 1});
}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::uint64_t offset, std::span<std::byte> out) const {
  check(offset <= entry.bytes() && out.size() <= entry.bytes() - offset, ErrorCode::bad_input,
        "{}: tensor '{}': {} bytes from {} on were asked for, but it has {}", path_, shown_name(entry.name), out.size(),
        offset, entry.bytes());
  // A read and not a copy from the mapping: a file cut meanwhile is then an error instead of a signal.
  if (!out.empty()) input_->read_at(header_.data_start + entry.begin + offset, out);
}

std::span<const std::byte> SafetensorsFile::mapped(const SafetensorsEntry& entry) const {
  if (mapping_ == nullptr || entry.bytes() == 0) return {};
  check_not_shrunk(entry);
  return mapping_->span().subspan(header_.data_start + entry.begin, entry.bytes());
}

}  // namespace fourfold
