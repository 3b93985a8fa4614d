// Byte-level BPE over a checked tokenizer.json: cut, merge, and back.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "fourfold/model.h"

namespace fourfold {

/// Tokenizer::load without a file: `json_text` is the content of a tokenizer.json, `name` stands for it in messages.
/// Throws bad_input or unsupported as parse_tokenizer_file does, and bad_input for a byte without a token.
std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view json_text, const std::string& name);

}  // namespace fourfold
