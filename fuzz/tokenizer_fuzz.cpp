// Fuzz target of tokenizer.json: any bytes load or are refused by code; what loads encodes any text and decodes it
// back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fourfold/error.h"
#include "model/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::shared_ptr<const fourfold::Tokenizer> tokenizer;
  try {
    tokenizer = fourfold::parse_tokenizer(bytes, "tokenizer.json");
  } catch (const fourfold::Error& error) {
    if (error.code() != fourfold::ErrorCode::bad_input && error.code() != fourfold::ErrorCode::unsupported)
      std::abort();
    return 0;
  }
  try {
    // The file itself is as good a text as any. Prefixes and templates may add to it, never take away.
    const std::string_view text = bytes.substr(0, 512);
    const std::string decoded = tokenizer->decode(tokenizer->encode(text));
    if (decoded.size() < text.size()) std::abort();
  } catch (const fourfold::Error& error) {
    // A pattern of the file may run into PCRE2's limits.
    if (error.code() != fourfold::ErrorCode::bad_input) std::abort();
  }
  return 0;
}
