// A tokenizer.json with one token per byte, id = byte, to which a test adds what it is about.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fourfold {

/// Byte-level BPE without merges or a pattern: encode gives the bytes. Written from the GPT-2 encoder's description.
inline nlohmann::json tiny_tokenizer() {
  nlohmann::json vocab = nlohmann::json::object();
  int shifted = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool control = byte <= 0x20 || (byte >= 0x7f && byte <= 0xa0) || byte == 0xad;
    const int code = control ? 0x100 + shifted++ : byte;
    std::string symbol;
    if (code < 0x80) {
      symbol = static_cast<char>(code);
    } else {
      symbol += static_cast<char>(0xc0 + code / 64);
      symbol += static_cast<char>(0x80 + code % 64);
    }
    vocab[symbol] = byte;
  }
  return {{"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
}

}  // namespace fourfold
