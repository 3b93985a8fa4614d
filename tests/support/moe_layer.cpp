// Implementation of the short words.
#include "support/moe_layer.h"

#include <cstring>

#include "core/float16.h"
#include "oracle/moe_oracle.h"

namespace support {

using namespace fourfold;

const std::vector<std::shared_ptr<Backend>>& backends() {
  static const std::vector<std::shared_ptr<Backend>> all = [] {
    std::vector<std::shared_ptr<Backend>> made;
    for (CpuIsa isa : {CpuIsa::portable, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16}) {
      Settings settings;
      settings.cpu_isa = std::string(cpu_isa_name(isa));
      std::shared_ptr<Backend> backend = cpu_backend(settings);
      if (backend->device().isa == isa) made.push_back(std::move(backend));
    }
    return made;
  }();
  return all;
}

Backend& native() { return *backends().back(); }

Caps caps_of(std::string_view problem) { return parse_problem(problem).caps; }

namespace {
ExpertWeights pack(const Plan& plan, Backend& backend, const StackedExperts& experts) {
  auto source = stacked_source(experts, plan.caps());
  return prepare_weights(plan, backend, *source);
}
}  // namespace

MoeLayer::MoeLayer(const Caps& caps, const StackedExperts& experts, Backend& backend)
    : backend_(backend),
      plan_(fourfold::plan(caps, backend.device())),
      weights_(pack(plan_, backend, experts)),
      workspace_(Workspace::allocate(plan_, backend)) {
  warm_up(plan_, backend);
}

void MoeLayer::run_in(const MoeTensors& inputs, std::span<std::byte> workspace, void* out,
                      std::uint32_t* invalid_ids) const {
  MoeTensors tensors = inputs;
  tensors.weights = &weights_;
  tensors.out = TensorView(out, plan_.caps().activation_dtype, {inputs.x.shape[0], plan_.caps().hidden});
  tensors.invalid_ids = invalid_ids;
  fourfold::run(fourfold::bind(plan_, backend_, tensors, workspace, own_stream(backend_)));
}

Bytes MoeLayer::run(const MoeTensors& inputs, std::uint32_t* invalid_ids) const {
  Bytes out(inputs.x.bytes(), std::byte{0xff});
  run_in(inputs, workspace_.span(), out.data(), invalid_ids);
  return out;
}

MoeTensors rows_of(const MoeTensors& inputs, std::int64_t first, std::int64_t count) {
  MoeTensors part = inputs;
  for (ConstTensorView* view : {&part.x, &part.topk_ids, &part.topk_weights}) {
    const std::int64_t row_bytes = view->shape[1] * dtype_bits(view->dtype) / 8;
    view->data = static_cast<const std::byte*>(view->data) + first * row_bytes;
    view->shape[0] = count;
  }
  return part;
}

namespace {
testing::AssertionResult fits_truth(const Caps& caps, const oracle::Truth& truth, const MoeTensors& inputs,
                                    const Bytes& out) {
  const ConstTensorView view(out.data(), caps.activation_dtype, {inputs.x.shape[0], caps.hidden});
  if (static_cast<std::int64_t>(out.size()) != view.bytes())
    return testing::AssertionFailure() << "the output has " << out.size() << " bytes, not " << view.bytes();
  const oracle::Difference difference = oracle::difference(view, truth);
  if (difference.compared == 0 || difference.compared != view.elements())
    return testing::AssertionFailure() << difference.compared << " elements compared of " << view.elements();
  if (difference.wrong > 0) {
    const std::int64_t at = difference.first_wrong;
    return testing::AssertionFailure() << difference.wrong << " of " << difference.compared << " wrong, worst "
                                       << difference.worst << " tolerances; first: token " << at / caps.hidden
                                       << " column " << at % caps.hidden << " got "
                                       << element(out, caps.activation_dtype, at) << " expected " << truth.value[at]
                                       << " +- " << truth.tolerance[at] << " ";
  }
  return testing::AssertionSuccess() << "worst " << difference.worst << " tolerances";
}
}  // namespace

testing::AssertionResult fits_oracle(const Caps& caps, const StackedExperts& experts, const MoeTensors& inputs,
                                     const Bytes& out) {
  return fits_truth(caps, oracle::evaluate(caps, experts, inputs), inputs, out);
}

testing::AssertionResult problem_fits(const Caps& caps, std::int64_t tokens, std::uint64_t seed, Backend& backend,
                                      const RandomCallOptions& options) {
  const RandomExperts experts(caps, seed);
  const RandomCall call = random_call(caps, tokens, seed + 1, options);
  const MoeLayer layer(caps, experts.stacked(), backend);
  std::uint32_t invalid = 0;
  const Bytes out = layer.run(call.tensors, &invalid);
  const oracle::Truth truth = oracle::evaluate(caps, experts.stacked(), call.tensors);
  testing::AssertionResult result = fits_truth(caps, truth, call.tensors, out);
  if (result && invalid != truth.invalid_ids)
    result = testing::AssertionFailure() << invalid << " invalid ids counted, not " << truth.invalid_ids;
  return result << "[" << problem_text({caps, {tokens}, ""}) << " on " << cpu_isa_name(backend.device().isa) << "]";
}

double element(const Bytes& out, DType dtype, std::int64_t index) {
  return oracle::real_element(ConstTensorView(out.data(), dtype, {static_cast<std::int64_t>(out.size())}), index);
}

Bytes in_dtype(const std::vector<double>& values, DType dtype) {
  const std::size_t width = dtype_bits(dtype) / 8;
  Bytes bytes(values.size() * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = static_cast<float>(values[i]);
    const std::uint16_t half = dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
    std::memcpy(bytes.data() + i * width, width == 4 ? static_cast<const void*>(&value) : &half, width);
  }
  return bytes;
}

}  // namespace support
