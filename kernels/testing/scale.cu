// The smallest kernel there is, for tests of compiling, caching and loading: y = factor * x.
#include "testing/scale.cuh"

/// x [count] f32 in, y [count] f32 out; one thread per element, any grid that covers `count`.
extern "C" __global__ void scale(const float* x, float* y, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = testing::scaled(x[i]);
}
