// The smallest kernel there is, for tests of compiling and caching: y = factor * x. Its header makes it one whose key
// has more than one source.
#pragma once

#include <vector>

#include "cuda/jit/embedded_sources.h"

namespace fourfold::cuda {

/// testing/scale.cu and testing/scale.cuh; the macro FACTOR is optional.
inline const SourceTree& scale_tree() {
  static const std::vector<SourceFile> files = {
      {"testing/scale.cu",
       "#include \"testing/scale.cuh\"\n"
       "// x [count] f32 in, y [count] f32 out; one thread per element, any grid that covers `count`.\n"
       "extern \"C\" __global__ void scale(const float* x, float* y, int count) {\n"
       "  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);\n"
       "  if (i < count) y[i] = testing::scaled(x[i]);\n"
       "}\n"},
      {"testing/scale.cuh",
       "#pragma once\n"
       "#ifndef FACTOR\n"
       "#define FACTOR 2.0f\n"
       "#endif\n"
       "namespace testing {\n"
       "inline float scaled(float value) { return FACTOR * value; }\n"
       "}  // namespace testing\n"}};
  static const SourceTree tree(files);
  return tree;
}

}  // namespace fourfold::cuda
