// What a tokenizer.json says, checked: the format of the Hugging Face tokenizers library, its byte-level BPE part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fourfold {

/// Largest id accepted, exclusive: tables are indexed by id, and no vocabulary comes near.
inline constexpr std::int64_t kTokenIdLimit = std::int64_t{1} << 24;

/// A token recognised in the text itself before any cutting. Raw ones are looked for before normalisation.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool normalized = false;
};

/// One step of cutting text into pieces, in order.
struct SplitStep {
  std::string pattern;            ///< empty: this step cuts nothing
  bool literal = false;           ///< the pattern is plain text
  bool add_prefix_space = false;  ///< a piece that does not start with a blank gets one
};

/// Everything encode and decode need. Strings of `vocab` and `merges` are in the byte-level alphabet.
struct TokenizerFile {
  std::unordered_map<std::string, std::int32_t> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  ///< by rank
  std::vector<AddedToken> added;
  std::vector<SplitStep> steps;
  std::vector<std::int32_t> prefix_ids, suffix_ids;  ///< what the post-processor puts around every text
  bool ignore_merges = false;                        ///< a piece that is a token stays one
  bool nfc = false;                                  ///< normalise to NFC first
};

/// Parses and checks. `name` is the file's name for messages. Throws bad_input naming file and key for what is
/// malformed, unsupported naming the key and the value for what another kind of tokenizer would need. Pure.
TokenizerFile parse_tokenizer_file(std::string_view json_text, const std::string& name);

}  // namespace fourfold
