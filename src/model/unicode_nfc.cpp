// NFC in its three steps over code points; Hangul by arithmetic (The Unicode Standard, section 3.12), the rest by
// table.
#include "model/unicode_nfc.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "model/unicode_nfc_tables.h"

namespace fourfold {
namespace {

constexpr std::uint32_t kHangul = 0xac00, kLead = 0x1100, kVowel = 0x1161, kTrail = 0x11a7;
constexpr std::uint32_t kVowels = 21, kTrails = 28, kLeads = 19, kHangulCount = kLeads * kVowels * kTrails;
/// Below it every character is its own normal form, starts a sequence and is never the second of a pair.
constexpr unsigned char kFirstByteOf0x300 = 0xcc;

std::uint64_t pair_key(std::uint32_t first, std::uint32_t second) { return std::uint64_t{first} << 32 | second; }

class Tables {
 public:
  Tables() {
    for (const auto& [code, first, second] : kComposable) {
      decompositions_[code] = pair_key(first, second);
      compositions_[pair_key(first, second)] = code;
    }
    for (const auto& [code, first, second] : kDecomposeOnly) decompositions_[code] = pair_key(first, second);
  }
  /// Appends the full canonical decomposition. Its depth is at most four.
  void decompose(std::uint32_t code, std::vector<std::uint32_t>& out) const {
    if (code - kHangul < kHangulCount) {
      const std::uint32_t index = code - kHangul;
      out.push_back(kLead + index / (kVowels * kTrails));
      out.push_back(kVowel + index % (kVowels * kTrails) / kTrails);
      if (index % kTrails != 0) out.push_back(kTrail + index % kTrails);
      return;
    }
    const auto found = decompositions_.find(code);
    if (found == decompositions_.end()) return out.push_back(code);
    decompose(static_cast<std::uint32_t>(found->second >> 32), out);
    if (const auto second = static_cast<std::uint32_t>(found->second); second != 0) out.push_back(second);
  }
  /// The composite of two characters, 0 when there is none.
  std::uint32_t compose(std::uint32_t first, std::uint32_t second) const {
    if (first - kLead < kLeads && second - kVowel < kVowels)
      return kHangul + ((first - kLead) * kVowels + (second - kVowel)) * kTrails;
    if (first - kHangul < kHangulCount && (first - kHangul) % kTrails == 0 && second - kTrail - 1 < kTrails - 1)
      return first + (second - kTrail);
    const auto found = compositions_.find(pair_key(first, second));
    return found == compositions_.end() ? 0 : found->second;
  }
  /// Canonical combining class.
  static int combining_class(std::uint32_t code) {
    const auto* after =
        std::upper_bound(std::begin(kCombining), std::end(kCombining), code,
                         [](std::uint32_t value, const CombiningRange& range) { return value < range.first; });
    if (after == std::begin(kCombining)) return 0;
    return code <= (after - 1)->last ? (after - 1)->combining_class : 0;
  }

 private:
  std::unordered_map<std::uint32_t, std::uint64_t> decompositions_;
  std::unordered_map<std::uint64_t, std::uint32_t> compositions_;
};

struct Character {
  std::uint32_t code;
  int combining_class;
};

/// `text` is valid UTF-8.
std::vector<Character> decomposed(std::string_view text, const Tables& tables) {
  std::vector<std::uint32_t> codes;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i]));
    };
    const std::size_t length = byte(0) < 0x80 ? 1 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
    std::uint32_t code = length == 1 ? byte(0) : byte(0) & (0x7fu >> length);
    for (std::size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3f);
    tables.decompose(code, codes);
    at += length;
  }
  std::vector<Character> characters;
  characters.reserve(codes.size());
  for (std::uint32_t code : codes) characters.push_back({code, Tables::combining_class(code)});
  return characters;
}

/// Sorts every run of characters with a class above 0 by class, keeping the order of equals.
void order(std::vector<Character>& characters) {
  const auto starts = [](const Character& c) { return c.combining_class == 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    if (starts(*begin)) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, characters.end(), starts);
    std::stable_sort(begin, end,
                     [](const Character& a, const Character& b) { return a.combining_class < b.combining_class; });
    begin = end;
  }
}

/// Composes in place: a character joins the last starter unless one between them blocks it (same or higher class).
void compose(std::vector<Character>& characters, const Tables& tables) {
  std::size_t written = 0, starter = 0;
  bool have_starter = false;
  for (const Character character : characters) {
    if (have_starter) {
      const bool adjacent = written == starter + 1;
      const bool blocked = !adjacent && (character.combining_class == 0 ||
                                         characters[written - 1].combining_class >= character.combining_class);
      const std::uint32_t composite = blocked ? 0 : tables.compose(characters[starter].code, character.code);
      if (composite != 0) {
        characters[starter].code = composite;
        continue;
      }
    }
    if (character.combining_class == 0) {
      starter = written;
      have_starter = true;
    }
    characters[written++] = character;
  }
  characters.resize(written);
}

void append_utf8(std::uint32_t code, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

std::string to_nfc(std::string_view text) {
  const bool trivial =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < kFirstByteOf0x300; });
  if (trivial) return std::string(text);
  static const Tables tables;
  std::vector<Character> characters = decomposed(text, tables);
  order(characters);
  compose(characters, tables);
  std::string out;
  out.reserve(text.size());
  for (const Character& character : characters) append_utf8(character.code, out);
  return out;
}

}  // namespace fourfold
