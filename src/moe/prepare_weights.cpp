// Packs a layer's experts on a device, one expert at a time, each checked before it is packed.
#include <string>

#include "backend/backend_interface.h"
#include "core/check.h"
#include "fourfold/moe.h"
#include "moe/bind.h"
#include "moe/stacked_source.h"

namespace fourfold {
namespace {

/// Passes a source through and checks each expert: no backend sees a matrix that breaks a rule.
class CheckedSource final : public ExpertSource {
 public:
  CheckedSource(ExpertSource& source, const Caps& caps) : source_(source), caps_(caps) {}
  ExpertMatrices expert(std::int64_t index) override {
    ExpertMatrices matrices = source_.expert(index);
    check_expert(matrices, index, caps_);
    return matrices;
  }

 private:
  ExpertSource& source_;
  const Caps& caps_;
};

}  // namespace

ExpertWeights prepare_weights(const Plan& plan, Backend& backend, ExpertSource& source) {
  check_device(plan, backend, "prepare_weights");
  CheckedSource checked(source, plan.caps());
  std::shared_ptr<const PackedExperts> packed = backend.interface().pack_experts(plan, checked);
  check(packed != nullptr, ErrorCode::internal, "prepare_weights: the device \"{}\" returned no weights",
        backend.device().name);
  return ExpertWeights(std::move(packed));
}

}  // namespace fourfold
