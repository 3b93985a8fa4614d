// One activation of 1 reads weights back: every code and every scale by itself, bit by bit.
#include "support/one_hot.h"

#include <gtest/gtest.h>

#include "support/naive_on_host.h"

using namespace fourfold;

namespace {

void expect_exact(Backend& backend, const support::OneHotCall& call, const std::string& text) {
  const support::MoeLayer layer(call.caps, call.experts, backend);
  const support::Bytes out = layer.run(call.tensors);
  ASSERT_EQ(out.size(), call.expected.size());
  for (std::size_t i = 0; i < out.size(); i += 2)
    ASSERT_TRUE(out[i] == call.expected[i] && out[i + 1] == call.expected[i + 1])
        << text << " element " << i / 2 << ": "
        << support::element(out, call.caps.activation_dtype, static_cast<std::int64_t>(i / 2)) << " for "
        << support::element(call.expected, call.caps.activation_dtype, static_cast<std::int64_t>(i / 2));
}

TEST(OneHot, ReadsEveryWeightBackExactly) {
  for (const char* format : {"nvfp4 bf16", "nvfp4 f16", "mxfp4 bf16", "mxfp4 f16", "int4 g32 bf16", "int4 g128 zp f16",
                             "int4 g96 zp bf16", "int4 grow f16"})
    for (const support::Projection projection : {support::Projection::gate_up, support::Projection::down}) {
      const auto call = support::one_hot_call(format, projection, 2, 136, 72, 5);
      for (const auto& backend : support::backends()) expect_exact(*backend, *call, format);
    }
}

TEST(OneHot, TheNaiveKernelsToo) {
  const auto host = support::naive_on_host();
  for (const char* format : {"nvfp4 bf16", "mxfp4 f16", "int4 g32 zp bf16"})
    for (const support::Projection projection : {support::Projection::gate_up, support::Projection::down})
      expect_exact(*host, *support::one_hot_call(format, projection, 2, 72, 40, 6), format);
}

// A scale that is off by one unit is seen: the comparison can fail.
TEST(OneHot, SeesOneWrongScale) {
  const auto call = support::one_hot_call("nvfp4 bf16", support::Projection::down, 1, 64, 48, 7);
  const support::Bytes right = call->expected;
  call->down.scales[5] = static_cast<std::byte>(static_cast<unsigned char>(call->down.scales[5]) == 0x30 ? 0x31 : 0x30);
  const support::MoeLayer layer(call->caps, call->experts, support::native());
  EXPECT_NE(layer.run(call->tensors), right);
}

}  // namespace
