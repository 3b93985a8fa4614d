// Random problems that keep every rule, for property tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "fourfold/plan.h"

namespace fourfold {

/// Log-uniform in low .. high: small numbers and huge ones come up alike.
inline std::int64_t log_uniform(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  std::uniform_real_distribution<double> exponent(std::log2(low + 1.0), std::log2(high + 1.0));
  return std::clamp(static_cast<std::int64_t>(std::exp2(exponent(random))) - 1, low, high);
}

inline FormatSpec random_format(std::mt19937_64& random) {
  const std::int64_t groups[] = {0, 16, 32, 64, 96, 128, 256};
  switch (random() % 3) {
    case 0:
      return FormatSpec::nvfp4();
    case 1:
      return FormatSpec::mxfp4();
    default:
      return FormatSpec::int4(groups[random() % std::size(groups)], random() % 2 == 0);
  }
}

inline Activation random_activation(std::mt19937_64& random) {
  Activation activation;
  activation.kind = static_cast<ActivationKind>(random() % 5);
  const auto real = [&random](double low, double high) {
    return static_cast<float>(std::uniform_real_distribution<double>(low, high)(random));
  };
  const bool oai = activation.kind == ActivationKind::swiglu_oai;
  if ((oai || activation.kind == ActivationKind::silu) && random() % 2) activation.limit = real(1e-6, 100);
  if (oai && random() % 2) activation.alpha = real(-10, 10);
  if (oai && random() % 2) activation.beta = real(-10, 10);
  return activation;
}

inline Caps random_caps(std::mt19937_64& random) {
  Caps caps;
  caps.max_tokens = log_uniform(random, 0, (std::int64_t{1} << 31) - 1);
  caps.top_k = log_uniform(random, 1, 64);
  caps.experts = log_uniform(random, 1, 4096);
  caps.global_experts = random() % 2 ? log_uniform(random, 1, 65536) : 0;
  caps.hidden = 8 * log_uniform(random, 1, (1 << 20) / 8);
  caps.intermediate = 8 * log_uniform(random, 1, (1 << 20) / 8);
  caps.format = random_format(random);
  const DType dtypes[] = {DType::bf16, DType::f16, DType::f32};
  caps.activation_dtype = dtypes[random() % std::size(dtypes)];
  caps.activation = random_activation(random);
  caps.gate_up_bias = random() % 2;
  caps.down_bias = random() % 2;
  caps.router_weight_on_input = random() % 2;
  caps.batch_invariant = random() % 2;
  return caps;
}

/// `caps` as a GPU serves them: 16-bit activations, and fewer tokens where they are more than its kernels count.
inline Caps servable_by_gpu(Caps caps, const Device& device) {
  if (caps.activation_dtype == DType::f32) caps.activation_dtype = DType::bf16;
  while (caps.max_tokens > 0 && !can_implement(caps, device)) caps.max_tokens /= 2;
  return caps;
}

inline Device random_cpu(std::mt19937_64& random) {
  Device device;
  device.name = "cpu";
  device.isa = static_cast<CpuIsa>(random() % 4);
  device.threads = static_cast<int>(log_uniform(random, 1, 256));
  return device;
}

}  // namespace fourfold
