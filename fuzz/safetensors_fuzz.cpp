// libFuzzer target: any bytes as a safetensors file. It parses, or throws bad_input; nothing else.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "fourfold/error.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto header = fourfold::parse_safetensors_header(std::as_bytes(std::span(data, size)), size, "fuzz");
    for (const auto& entry : header.entries)
      if (entry.end < entry.begin || header.data_start + entry.end > size) std::abort();
  } catch (const fourfold::Error& error) {
    if (error.code() != fourfold::ErrorCode::bad_input) std::abort();
  }
  return 0;
}
