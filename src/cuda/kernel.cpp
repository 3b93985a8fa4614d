// Launching a kernel.
#include "cuda/kernel.h"

#include "core/check.h"

namespace fourfold::cuda {

void Kernel::launch_with(const Grid& grid, CUstream stream, const void* params,
                         std::uint32_t dynamic_bytes) const {
  const Context& context = *loaded_->module.context();
  const DriverApi& driver = context.driver();
  void* arguments[] = {const_cast<void*>(params)};  // the driver's signature is not const; it only reads
  const CUresult result = driver.launch_kernel.function(loaded_->function, grid.x, grid.y, grid.z, block_threads_, 1, 1,
                                                        dynamic_bytes, stream, arguments, nullptr);
  if (result != kSuccess) [[unlikely]]
    fail(error_code(result), "{} on cuda:{} failed for kernel {}, grid {} x {} x {}, {} threads, {} bytes: {}",
         driver.launch_kernel.name, context.ordinal(), loaded_->name, grid.x, grid.y, grid.z, block_threads_,
         dynamic_bytes, driver.result_text(result));
  loaded_->launches.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace fourfold::cuda
