// A model whose logits are wrong on purpose: proves that verify model sees a fault.
#pragma once

#include <memory>

#include "fourfold/model.h"
#include "fourfold/verify.h"

namespace fourfold::cli {

/// `model` itself when `inject` is none; else a model that hands out its logits corrupted:
/// nan: the largest logit of every call is NaN; zero: all are 0; stale: those of the call before (0 at first);
/// swap: the largest and the smallest of every row change places.
std::unique_ptr<Model> inject_into(std::unique_ptr<Model> model, Inject inject);

}  // namespace fourfold::cli
