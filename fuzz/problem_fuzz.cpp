// Fuzz target of the problem grammar: any bytes parse or throw usage, and what parses is written and read back alike.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fourfold/error.h"
#include "fourfold/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const fourfold::Problem problem = fourfold::parse_problem(text);
    const fourfold::Problem again = fourfold::parse_problem(fourfold::problem_text(problem));
    if (!(again.caps == problem.caps) || again.tokens != problem.tokens || again.arch != problem.arch) std::abort();
    // A problem that no device accepts is refused in words, never by a throw.
    static_cast<void>(fourfold::can_implement(problem.caps, fourfold::device_preset("cpu")));
  } catch (const fourfold::Error& error) {
    if (error.code() != fourfold::ErrorCode::usage) std::abort();
  }
  return 0;
}
