// One decoder layer: norm, attention, norm, feed-forward, around a residual stream in fp32.
#include "model/layer.h"

namespace fourfold {

namespace {

const float* floats(const Workspace& memory) {
  return memory.span().empty() ? nullptr : reinterpret_cast<const float*>(memory.span().data());
}

void project_qkv(Ops& ops, Layer& layer, StepBuffers& buffers, const LayerStep& step) {
  MatmulCall call;
  call.x = buffers.x;
  call.x_dtype = layer.activations;
  call.m = step.tokens;
  call.y = buffers.qkv;
  call.scratch = buffers.scratch;
  ops.matmul(*layer.qkv, call);
  PrepareQkvCall prepare;
  prepare.qkv = buffers.qkv;
  prepare.tokens = step.tokens;
  prepare.past = step.past;
  prepare.heads = layer.heads;
  prepare.q_norm = floats(layer.q_norm);
  prepare.k_norm = floats(layer.k_norm);
  prepare.eps = layer.eps;
  prepare.rope = step.rope;
  prepare.cache = step.cache;
  ops.prepare_qkv(prepare);
}

/// Attention and output projection of the wanted rows; `residual` is their first.
void attend(Ops& ops, Layer& layer, StepBuffers& buffers, const LayerStep& step, float* residual) {
  const std::int64_t skipped = step.tokens - step.wanted;
  AttentionCall call;
  call.qkv = buffers.qkv + skipped * layer.qkv->rows();
  call.tokens = step.wanted;
  call.past = step.past + skipped;
  call.heads = layer.heads;
  call.scale = layer.attention_scale;
  call.cache = step.cache;
  call.out = buffers.attended;
  call.scratch = buffers.scratch;
  ops.attention(call);
  MatmulCall output;
  output.x = buffers.attended;
  output.x_dtype = layer.activations;
  output.m = step.wanted;
  output.y = residual;
  output.add = true;
  output.scratch = buffers.scratch;
  ops.matmul(*layer.o, output);
}

}  // namespace

std::uint64_t Layer::weight_bytes() const noexcept {
  return input_norm.span().size() + post_norm.span().size() + q_norm.span().size() + k_norm.span().size() +
         qkv->bytes() + o->bytes() + feed_forward->weight_bytes();
}

void run_layer(Ops& ops, Layer& layer, StepBuffers& buffers, LayerStep& step) {
  const std::int64_t hidden = layer.o->rows();
  RmsNormCall norm;
  norm.x = buffers.residual;
  norm.addend = step.addend;
  norm.addend_dtype = norm.y_dtype = layer.activations;
  norm.weight = floats(layer.input_norm);
  norm.eps = layer.eps;
  norm.rows = step.tokens;
  norm.width = hidden;
  norm.y = buffers.x;
  ops.rms_norm(norm);
  project_qkv(ops, layer, buffers, step);

  float* residual = buffers.residual + (step.tokens - step.wanted) * hidden;
  attend(ops, layer, buffers, step, residual);
  norm.x = residual;
  norm.addend = nullptr;
  norm.weight = floats(layer.post_norm);
  norm.rows = step.wanted;
  ops.rms_norm(norm);
  step.addend = layer.feed_forward->run(buffers, step.wanted, residual);
}

}  // namespace fourfold
