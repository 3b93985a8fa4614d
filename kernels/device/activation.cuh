// The activations between the two projections (formulas: include/fourfold/plan.h), in fp32. exp and tanh are the device
// library's (CUDA C++ Programming Guide, "Mathematical functions": at most 2 units in the last place), NaN in, NaN out.
#pragma once

#include "params/activation.h"

namespace fourfold::kernels {

__device__ inline float at_most(float value, float limit) { return value > limit ? limit : value; }   // NaN stays
__device__ inline float at_least(float value, float limit) { return value < limit ? limit : value; }  // NaN stays

__device__ inline float sigmoid(float x) { return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x))); }

/// act(g, u), not rounded. Products are taken from left to right. Params has has_limit, limit, alpha and beta.
template <Activation kActivation, class Params>
__device__ inline float activate(const Params& p, float g, float u) {
  switch (kActivation) {
    case Activation::silu:
      if (p.has_limit) {
        g = at_most(g, p.limit);
        u = at_least(at_most(u, p.limit), -p.limit);
      }
      return __fmul_rn(__fmul_rn(g, sigmoid(g)), u);
    case Activation::swiglu_oai:
      g = at_most(g, p.limit);
      u = at_least(at_most(u, p.limit), -p.limit);
      return __fmul_rn(__fmul_rn(g, sigmoid(__fmul_rn(p.alpha, g))), __fadd_rn(u, p.beta));
    case Activation::situ: {
      const float gate = __fmul_rn(__fmul_rn(4.0f, tanhf(__fmul_rn(g, 0.25f))), sigmoid(g));
      return __fmul_rn(gate, __fmul_rn(25.0f, tanhf(__fdiv_rn(u, 25.0f))));
    }
    case Activation::gelu_tanh: {
      // (1 + tanh z) / 2 = sigmoid(2 z), without the cancellation near tanh z = -1; 2 sqrt(2 / pi) = 1.5957...
      const float cube = __fmul_rn(__fmul_rn(__fmul_rn(0.044715f, g), g), g);
      return __fmul_rn(__fmul_rn(g, sigmoid(__fmul_rn(1.59576912160573081f, __fadd_rn(g, cube)))), u);
    }
    case Activation::relu2:
      break;
  }
  const float positive = at_least(u, 0.0f);
  return __fmul_rn(positive, positive);
}

/// The same with the activation that p.activation names.
template <class Params>
__device__ inline float activate_as(const Params& p, float g, float u) {
  switch (static_cast<Activation>(p.activation)) {
    case Activation::silu:
      return activate<Activation::silu>(p, g, u);
    case Activation::swiglu_oai:
      return activate<Activation::swiglu_oai>(p, g, u);
    case Activation::situ:
      return activate<Activation::situ>(p, g, u);
    case Activation::gelu_tanh:
      return activate<Activation::gelu_tanh>(p, g, u);
    case Activation::relu2:
      break;
  }
  return activate<Activation::relu2>(p, g, u);
}

}  // namespace fourfold::kernels
