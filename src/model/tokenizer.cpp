// The walk of a text: added tokens, normalisation, valid UTF-8 stretches, split patterns, byte-pair merging.
// Bytes that are no UTF-8 become pieces of one byte each, which no pattern sees, so that every input round-trips.
#include "model/tokenizer.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "core/check.h"
#include "core/file.h"
#include "model/byte_pair_merge.h"
#include "model/json_text.h"
#include "model/text_split.h"
#include "model/tokenizer_file.h"
#include "model/unicode_nfc.h"

namespace fourfold {
namespace {

/// The byte-level alphabet (GPT-2's bytes_to_unicode): printable Latin-1 bytes stand for themselves, the other bytes,
/// in order, for U+0100, U+0101, ... Returns the code point of every byte.
std::array<std::uint32_t, 256> byte_alphabet() {
  std::array<std::uint32_t, 256> alphabet{};
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}

/// Two bytes at most: the alphabet ends below U+0800.
std::string utf8(std::uint32_t code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

using ByteOfSymbol = std::unordered_map<std::string, char>;

/// The bytes that a token of the byte-level alphabet stands for; nullopt when a character is not of the alphabet.
std::optional<std::string> token_bytes(const std::string& token, const ByteOfSymbol& byte_of_symbol) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t length = static_cast<unsigned char>(token[at]) < 0x80 ? 1 : 2;
    const auto found = byte_of_symbol.find(token.substr(at, length));
    if (found == byte_of_symbol.end()) return std::nullopt;
    bytes += found->second;
    at += length;
  }
  return bytes;
}

/// Finds added tokens in text: at the first place where one starts, the longest one.
class AddedTokenFinder {
 public:
  void add(const std::string& content, std::int32_t id) {
    by_first_byte_[static_cast<unsigned char>(content[0])].push_back({content, id});
  }
  void finish() {
    for (auto& list : by_first_byte_)
      std::stable_sort(list.begin(), list.end(),
                       [](const Entry& a, const Entry& b) { return a.content.size() > b.content.size(); });
  }
  struct Found {
    std::size_t begin = 0, end = 0;
    std::int32_t id = -1;
  };
  std::optional<Found> find(std::string_view text, std::size_t from) const {
    for (std::size_t at = from; at < text.size(); ++at)
      for (const Entry& entry : by_first_byte_[static_cast<unsigned char>(text[at])])
        if (text.substr(at).starts_with(entry.content)) return Found{at, at + entry.content.size(), entry.id};
    return std::nullopt;
  }

 private:
  struct Entry {
    std::string content;
    std::int32_t id;
  };
  std::array<std::vector<Entry>, 256> by_first_byte_;
};

/// NFC of the valid stretches; bytes that are no UTF-8 stay where they are.
std::string normalized(std::string_view text) {
  std::vector<TextPiece> pieces;
  split_valid_utf8(text, pieces);
  std::string out;
  for (const TextPiece& piece : pieces) out += piece.opaque ? std::string(piece.text) : to_nfc(piece.text);
  return out;
}

class BytePairTokenizer final : public Tokenizer {
 public:
  BytePairTokenizer(const TokenizerFile& file, const std::string& name);
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(text_of_id_.size()); }

 private:
  /// Memory of one call of encode: the pieces of two steps, prefixed copies, the merge list.
  struct Call {
    std::vector<TextPiece> pieces, next;
    std::deque<std::string> prefixed;
    MergeScratch merge;
    std::vector<std::int32_t> ids;
  };
  struct Step {
    std::unique_ptr<PatternSplitter> splitter;  // null: cuts nothing
    bool add_prefix_space = false;
  };
  void build_vocabulary(const TokenizerFile& file, const std::string& name);
  void encode_stretch(std::string_view text, Call& call) const;
  void apply(const Step& step, Call& call) const;

  AddedTokenFinder raw_tokens_, normalized_tokens_;
  std::vector<Step> steps_;
  std::array<std::int32_t, 256> byte_ids_{};
  MergeTable merges_;
  bool ignore_merges_ = false;
  bool nfc_ = false;
  std::unordered_map<std::string, std::int32_t> id_of_bytes_;  // filled only with ignore_merges
  std::vector<std::string> text_of_id_;                        // empty string: a gap
  std::vector<std::int32_t> prefix_ids_, suffix_ids_;
};

BytePairTokenizer::BytePairTokenizer(const TokenizerFile& file, const std::string& name)
    : ignore_merges_(file.ignore_merges), nfc_(file.nfc), prefix_ids_(file.prefix_ids), suffix_ids_(file.suffix_ids) {
  for (const SplitStep& step : file.steps)
    steps_.push_back({step.pattern.empty()
                          ? nullptr
                          : std::make_unique<PatternSplitter>(step.pattern, step.literal, name + ": pre_tokenizer"),
                      step.add_prefix_space});
  build_vocabulary(file, name);
  merges_.reserve(file.merges.size());
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    merges_.set(file.vocab.at(left), file.vocab.at(right),
                {static_cast<std::int32_t>(rank), file.vocab.at(left + right)});
  }
  for (const AddedToken& token : file.added)
    (token.normalized ? normalized_tokens_ : raw_tokens_).add(token.content, token.id);
  raw_tokens_.finish();
  normalized_tokens_.finish();
}

void BytePairTokenizer::build_vocabulary(const TokenizerFile& file, const std::string& name) {
  std::int32_t largest = 0;
  for (const auto& [token, id] : file.vocab) largest = std::max(largest, id);
  for (const AddedToken& token : file.added) largest = std::max(largest, token.id);
  text_of_id_.resize(static_cast<std::size_t>(largest) + 1);

  const auto alphabet = byte_alphabet();
  ByteOfSymbol byte_of_symbol;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string symbol = utf8(alphabet[byte]);
    byte_of_symbol[symbol] = static_cast<char>(byte);
    const auto found = file.vocab.find(symbol);
    check(found != file.vocab.end(), ErrorCode::bad_input, "{}: model.vocab has no token for byte {:#04x} (\"{}\")",
          name, byte, symbol);
    byte_ids_[byte] = found->second;
  }
  for (const auto& [token, id] : file.vocab) {
    const auto bytes = token_bytes(token, byte_of_symbol);
    text_of_id_[id] = bytes.value_or(token);
    if (bytes && ignore_merges_) id_of_bytes_.emplace(*bytes, id);
  }
  for (const AddedToken& token : file.added) text_of_id_[token.id] = token.content;
}

void BytePairTokenizer::apply(const Step& step, Call& call) const {
  call.next.clear();
  for (TextPiece piece : call.pieces) {
    if (piece.opaque) {
      call.next.push_back(piece);
      continue;
    }
    if (step.add_prefix_space && !piece.text.starts_with(' '))
      piece.text = call.prefixed.emplace_back(' ' + std::string(piece.text));
    if (step.splitter)
      step.splitter->split(piece.text, call.next);
    else
      call.next.push_back(piece);
  }
  call.pieces.swap(call.next);
}

void BytePairTokenizer::encode_stretch(std::string_view text, Call& call) const {
  call.pieces.clear();
  call.prefixed.clear();
  split_valid_utf8(text, call.pieces);
  for (const Step& step : steps_) apply(step, call);
  for (const TextPiece& piece : call.pieces) {
    if (ignore_merges_)
      if (const auto found = id_of_bytes_.find(std::string(piece.text)); found != id_of_bytes_.end()) {
        call.ids.push_back(found->second);
        continue;
      }
    byte_pair_merge(piece.text, byte_ids_.data(), merges_, call.merge, call.ids);
  }
}

std::vector<std::int32_t> BytePairTokenizer::encode(std::string_view text) const {
  Call call;
  call.ids = prefix_ids_;
  // Calls `between` for what lies between added tokens and appends the ids of those.
  const auto walk = [&call](const AddedTokenFinder& finder, std::string_view stretch, const auto& between) {
    std::size_t at = 0;
    while (const auto found = finder.find(stretch, at)) {
      if (found->begin > at) between(stretch.substr(at, found->begin - at));
      call.ids.push_back(found->id);
      at = found->end;
    }
    if (at < stretch.size()) between(stretch.substr(at));
  };
  walk(raw_tokens_, text, [&](std::string_view stretch) {
    const std::string normal = nfc_ ? normalized(stretch) : std::string();
    walk(normalized_tokens_, nfc_ ? std::string_view(normal) : stretch,
         [&](std::string_view plain) { encode_stretch(plain, call); });
  });
  call.ids.insert(call.ids.end(), suffix_ids_.begin(), suffix_ids_.end());
  return std::move(call.ids);
}

std::string BytePairTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::int32_t id : ids) {
    check(id >= 0, ErrorCode::usage, "decode: id {} is negative", id);
    // A model may have more rows than the tokenizer has tokens; those ids print as nothing, like gaps.
    if (static_cast<std::size_t>(id) < text_of_id_.size()) text += text_of_id_[id];
  }
  return text;
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view json_text, const std::string& name) {
  return std::make_shared<const BytePairTokenizer>(parse_tokenizer_file(json_text, name), name);
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& path_of_tokenizer_json) {
  return parse_tokenizer(read_text_file(path_of_tokenizer_json, kMaxJsonBytes), path_of_tokenizer_json);
}

}  // namespace fourfold
