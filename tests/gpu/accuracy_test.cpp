// How exact: the error norm on shapes of models, scales read back one by one, poisoned workspaces of a server.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "gpu/gpu_call.h"
#include "gpu/gpu_device.h"
#include "moe/reference_moe.h"
#include "support/one_hot.h"

namespace fourfold::gpu_test {
namespace {

// Rounding the intermediate and the result to bf16, and nothing else, gives 2.35e-3.
constexpr double kLargestRelativeError = 2.5e-3;

/// |out - expected| / |expected| over some rows of a batch, in the L2 norm.
double relative_error(const GpuLayer& layer, const RandomExperts& experts, const MoeTensors& inputs,
                      std::int64_t rows) {
  const RowsOfCall samples(inputs, spread_rows(inputs.x.shape[0], rows));
  const ReferenceResult reference = reference_moe(layer.plan().caps(), experts.stacked(), samples.tensors());
  const Bytes out = samples.of_output(GpuCall(layer, inputs).run());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < reference.expected.size(); ++i) {
    const double value = support::element(out, layer.plan().caps().activation_dtype, static_cast<std::int64_t>(i));
    error += (value - reference.expected[i]) * (value - reference.expected[i]);
    size += reference.expected[i] * reference.expected[i];
  }
  return std::sqrt(error / size);
}

TEST(Accuracy, RelativeErrorOnModelShapes) {
  const std::vector<std::string> shapes = {
      "k8 e160 h6144 i512 nvfp4 bf16 silu", "k4 e32 h2880 i2880 mxfp4 bf16 swiglu_oai bias",
      "k8 e128 h2048 i768 int4 g32 bf16 silu", "k6 e64 h2048 i1408 int4 g128 zp bf16 silu",
      "k8 e32 h7168 i2048 nvfp4 bf16 silu"};
  const std::size_t count = depth() == Depth::quick ? 1 : shapes.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Caps caps = support::caps_of("t300 " + shapes[i]);
    const RandomExperts experts(caps, 31);
    const RandomCall call = random_call(caps, 300, 32);
    const GpuLayer layer(gpu(), caps, experts.stacked());
    for (const std::int64_t tokens : {16, 64, 300}) {
      const double error = relative_error(layer, experts, support::rows_of(call.tensors, 0, tokens), 16);
      EXPECT_LE(error, kLargestRelativeError) << tokens << " tokens of " << shapes[i];
      EXPECT_GT(error, 1e-4) << "too good for bf16: " << shapes[i];
      RecordProperty("relative_error_t" + std::to_string(tokens) + "_" + std::to_string(i), std::to_string(error));
      std::printf("relative error %.3e at %ld tokens of %s\n", error, static_cast<long>(tokens), shapes[i].c_str());
    }
  }
}

// fp16 has three bits more.
TEST(Accuracy, RelativeErrorInFp16) {
  const Caps caps = support::caps_of("t300 k8 e32 h2048 i768 nvfp4 f16 silu");
  const RandomExperts experts(caps, 31);
  const RandomCall call = random_call(caps, 300, 32);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  for (const std::int64_t tokens : {16, 300})
    EXPECT_LE(relative_error(layer, experts, support::rows_of(call.tensors, 0, tokens), 16), kLargestRelativeError / 8);
}

TEST(Accuracy, OneHotActivationsReadEveryWeightAndScaleBack) {
  for (Backend* backend : {&gpu(), &naive_gpu()})
    for (const char* format : {"nvfp4 bf16", "nvfp4 f16", "mxfp4 bf16", "mxfp4 f16", "int4 g16 bf16", "int4 g32 f16",
                               "int4 g128 zp f16", "int4 g96 zp bf16", "int4 grow f16"})
      for (const support::Projection projection : {support::Projection::gate_up, support::Projection::down})
        for (const std::int64_t hidden : {136, 264}) {
          const auto call = support::one_hot_call(format, projection, 3, hidden, 72, 5);
          const GpuLayer layer(*backend, call->caps, call->experts);
          EXPECT_EQ(GpuCall(layer, call->tensors).run(), call->expected)
              << format << " projection " << static_cast<int>(projection) << " hidden " << hidden;
        }
}

/// 1 token of a plan for 300 leaves most of its workspace alone: what the server's poison must have filled.
TEST(PoisonWorkspace, EagerAndCapturedRunsFillItFirst) {
  for (const bool naive : {false, true}) {
    Settings settings = settings_from_environment();
    settings.poison_workspace = true;
    const std::shared_ptr<Backend> backend = new_backend(0, settings, naive);
    const Caps caps = support::caps_of("t300 k4 e16 h256 i128 nvfp4 bf16 silu");
    const RandomExperts experts(caps, 8);
    const RandomCall inputs = random_call(caps, 300, 9);
    const GpuLayer plain_layer(naive ? naive_gpu() : gpu(), caps, experts.stacked());
    const GpuLayer layer(*backend, caps, experts.stacked());
    for (const std::int64_t tokens : {1, 300}) {
      const MoeTensors rows = support::rows_of(inputs.tensors, 0, tokens);
      const Bytes expected = GpuCall(plain_layer, rows).run();
      const GpuCall call(layer, rows);
      const auto old_bytes = [&] {
        const Bytes workspace = layer.workspace().read(layer.workspace().bytes());
        return std::count(workspace.begin(), workspace.end(), std::byte{0x11});
      };
      EXPECT_EQ(call.run(0x11), expected) << tokens;
      const auto most = static_cast<std::ptrdiff_t>(tokens == 1 ? layer.workspace().bytes() / 50 : PTRDIFF_MAX);
      EXPECT_LE(old_bytes(), most);
      const cuda::Stream stream = cuda::Stream::create(context());
      const Recording recording = record(call, stream);
      for (int launch = 0; launch < 3; ++launch) {
        EXPECT_EQ(replay(recording, call, stream, 0x11), expected) << tokens << " replay " << launch;
        EXPECT_LE(old_bytes(), most);
      }
      EXPECT_TRUE(call.untouched());
    }
  }
}

}  // namespace
}  // namespace fourfold::gpu_test
