// The backend seam on an NVIDIA GPU.
#pragma once

#include <memory>

#include "backend/backend_interface.h"
#include "cuda/driver_api.h"
#include "cuda/jit/image_store.h"

namespace fourfold::cuda {

/// GPU `ordinal` of `driver`, with kernels from a store made of `kernels`. `poison_workspace` as in Settings;
/// `naive_kernels`: its device() plans the plain twins. Effects and errors of cuda_backend().
std::unique_ptr<BackendInterface> make_cuda_interface(std::shared_ptr<const DriverApi> driver, int ordinal,
                                                      ImageStoreOptions kernels, bool poison_workspace = false,
                                                      bool naive_kernels = false);

}  // namespace fourfold::cuda
