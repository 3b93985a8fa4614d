// The one notation for problems, in tests, bench, command line, logs and errors. Grammar: docs/cli.md.
#pragma once

#include <string>

#include "fourfold/plan.h"

namespace fourfold {

/// The caps as a problem of one token count: "t64 k8 e128 h2048 i768 nvfp4 bf16 silu". Any field content is written,
/// also one that no plan accepts, so that refusals can be printed. Pure.
std::string caps_text(const Caps& caps);

}  // namespace fourfold
