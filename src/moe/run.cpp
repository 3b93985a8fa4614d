// The hot path of the facade: hand a checked call to its device.
#include "backend/backend_interface.h"
#include "fourfold/moe.h"

namespace fourfold {

void run(const Binding& binding) {
  const BoundMoe& bound = binding.bound();
  if (bound.tokens == 0) return;  // nothing to launch
  bound.backend->run_moe(bound);
}

}  // namespace fourfold
