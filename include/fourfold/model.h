// A model around the operation: read a checkpoint, look at it, quantise it, generate, evaluate, compare.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fourfold/backend.h"
#include "fourfold/plan.h"
#include "fourfold/weights.h"

namespace fourfold {

// ---- inspect -------------------------------------------------------------------------------------------------

/// One tensor as its file's header describes it.
struct TensorInfo {
  std::string name;
  std::string file;                  ///< file name inside the checkpoint folder
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

/// What a checkpoint holds; reads headers and configs only. `has_config` is false for a single .safetensors file.
struct CheckpointInfo {
  std::string path;
  bool has_config = false;
  std::string architecture;          ///< "Qwen3MoeForCausalLM"
  std::int64_t layers = 0, hidden = 0, vocabulary = 0, experts = 0, top_k = 0, expert_intermediate = 0;
  std::string quantization;          ///< layout of the experts in words: "nvfp4 (ModelOpt)", "none (BF16)", ...
  std::uint64_t total_bytes = 0;
  std::uint64_t expert_bytes = 0;
  std::vector<std::pair<std::string, std::uint64_t>> bytes_by_dtype;
  std::vector<TensorInfo> tensors;   ///< by name
};
/// `path` is a folder or one .safetensors file. Throws bad_input.
CheckpointInfo inspect_checkpoint(const std::string& path);

/// What planning needs of a model, from its config.json and, where there are any, the headers of its weights.
struct ModelShape {
  std::string file;                  ///< the config.json that was read
  std::string architecture;          ///< "Qwen3MoeForCausalLM"
  std::int64_t layers = 0;           ///< of the decoder, without those that only draft
  std::int64_t moe_layers = 0;       ///< of them with experts
  std::int64_t draft_layers = 0;     ///< multi-token prediction
  std::int64_t hidden = 0, experts = 0, top_k = 0, expert_intermediate = 0;
  std::string activation;            ///< as problems spell it: "silu", "swiglu_oai", "gelu_tanh", "relu2"
  bool biases = false;               ///< both projections have one
  std::string format;                ///< as problems spell it: "nvfp4", "int4 g128 zp", "exl3 b3"; empty: not 4 bits
  std::int64_t kv_heads = 0, head_dim = 0;
  std::int64_t kv_latent = 0;        ///< > 0: latent attention caches so many values a token and layer, not heads
  std::int64_t max_positions = 0;
  std::uint64_t file_bytes = 0;      ///< of all tensors by their headers; 0 when there are no weights beside the config
  std::uint64_t file_expert_bytes = 0;
  /// Values that one token adds to the cache of one layer on one of `tp` ranks: keys and values of the rank's heads, or
  /// the latent, which every rank holds. Pure.
  std::int64_t kv_values(std::int64_t tp) const noexcept;
};
/// `path` is a folder or a config.json. Reads no weights. Throws bad_input for a damaged config or one without experts,
/// unsupported for an activation that problems have no word for.
ModelShape read_model_shape(const std::string& path);

// ---- quantize ------------------------------------------------------------------------------------------------

enum class CheckpointLayout : std::uint8_t { modelopt, compressed_tensors };

/// What quantize_checkpoint writes. An option that the format does not know is refused (usage).
struct QuantizeOptions {
  FormatSpec format = FormatSpec::nvfp4();
  bool four_over_six = false;                        ///< nvfp4: choose block maximum 4 or 6 by squared error
  std::optional<CheckpointLayout> layout;            ///< default: modelopt for nvfp4, else compressed_tensors
};
/// How far it is.
struct QuantizeProgress {
  std::string shard;            ///< file being written
  std::uint64_t bytes_done = 0, bytes_total = 0;     ///< of source tensors
};
/// What it wrote. Errors are of the quantised weights against the source's, in fp32.
struct QuantizeReport {
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::uint64_t expert_bytes_before = 0, expert_bytes_after = 0;
  std::int64_t matrices = 0;    ///< expert matrices quantised
  double relative_rms_error = 0;  ///< sqrt(sum (w - q)^2 / sum w^2) over all expert weights
  double max_abs_error = 0;
  double seconds = 0;
};
/// Writes a HF-style checkpoint with 4-bit experts into `destination` (must not exist or be empty): written aside,
/// fsynced, renamed; on failure nothing stays. `progress` is called after each tensor; what it throws ends the work.
/// Throws bad_input for a damaged checkpoint or a destination that cannot be written, unsupported for a model that is
/// quantised already or has no expert matrix, usage for a destination with content (also when it appeared meanwhile)
/// and for options that the format does not know.
QuantizeReport quantize_checkpoint(const std::string& source, const std::string& destination,
                                   const QuantizeOptions& options,
                                   const std::function<void(const QuantizeProgress&)>& progress = {});

// ---- tokenizer -----------------------------------------------------------------------------------------------

/// Byte-level BPE of a tokenizer.json. Immutable, thread-safe.
class Tokenizer {
 public:
  /// Throws bad_input for a damaged file, unsupported for a kind or an option that is not known, by key and value.
  static std::shared_ptr<const Tokenizer> load(const std::string& path_of_tokenizer_json);
  virtual ~Tokenizer() = default;
  /// Special tokens in the text are recognised. Any bytes are accepted.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// Bytes of the ids; special tokens print as their text; ids in a gap print as nothing.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual std::int64_t size() const noexcept = 0;   ///< largest id + 1
};

// ---- model ---------------------------------------------------------------------------------------------------

/// How the next token is chosen. Values out of range are refused (usage).
struct SamplingOptions {
  float temperature = 0.0f;         ///< 0 is greedy
  std::int64_t top_k = 0;           ///< 0 is off
  float top_p = 1.0f;               ///< keep the likeliest up to this total probability
  float min_p = 0.0f;               ///< drop tokens below this share of the likeliest's probability
  float repetition_penalty = 1.0f;  ///< above 1 makes tokens that occurred less likely
  std::uint64_t seed = 0;           ///< the same seed gives the same text
};

/// How a model is loaded.
struct ModelOptions {
  DType activations = DType::bf16;  ///< bf16 or f32
  bool memory_map = true;           ///< false: plain reads
  std::int64_t max_tokens = 512;    ///< largest prefill chunk
  std::int64_t context = 0;         ///< KV positions; 0 is the model's own maximum
  bool batch_invariant = false;     ///< as Caps::batch_invariant, for the expert layers
};

/// A text, and what it cost.
struct GenerateResult {
  std::vector<std::int32_t> prompt_ids, ids;   ///< ids include the stop id, if one ended the text
  std::string text;                            ///< decoded ids without the stop id
  double prefill_tokens_per_second = 0, decode_tokens_per_second = 0;
  std::uint64_t peak_memory_bytes = 0;         ///< of the process
  double load_seconds = 0;
};

/// Definitions in docs/cli.md "eval".
struct EvalResult {
  double mean_nll = 0, perplexity = 0, seconds = 0;  ///< mean_nll in nats per token
  std::int64_t tokens = 0, window = 0;               ///< targets; tokens a window
};

/// The largest differences from a reference; docs/cli.md "verify model".
struct VerifyModelResult {
  double max_logit_error = 0, max_nll_error = 0;
  std::int64_t greedy_matched = 0, greedy_total = 0;
  std::int64_t logits_compared = 0;
  bool ok = false;  ///< all within the tolerances, and something was compared
};

/// A loaded model with one KV cache. Not thread-safe: one caller at a time.
class Model {
 public:
  /// Reads and checks the whole checkpoint, packs the experts and the dense layers on `backend`, which the model keeps.
  /// Throws usage for bad options, bad_input for a damaged checkpoint, unsupported for an architecture, layout or
  /// device that cannot run models (GPUs: expert layers only), unavailable when there is not enough memory.
  static std::unique_ptr<Model> load(const std::string& folder, std::shared_ptr<Backend> backend,
                                     const ModelOptions& options = {});
  virtual ~Model() = default;
  virtual std::int64_t vocabulary() const noexcept = 0;  ///< columns of the logits
  virtual std::int64_t context() const noexcept = 0;     ///< positions of the KV cache
  /// Ids that end a text, from generation_config.json.
  virtual const std::vector<std::int32_t>& stop_ids() const noexcept = 0;
  /// Null when the folder has no tokenizer.json.
  virtual const Tokenizer* tokenizer() const noexcept = 0;
  virtual std::string format_text() const = 0;          ///< "nvfp4", "bf16", ... of the experts
  virtual std::uint64_t weight_bytes() const noexcept = 0;  ///< as packed, without the KV cache
  /// Forgets all positions.
  virtual void reset() = 0;
  /// Appends `ids` at the current position and returns logits, f32 [n, vocabulary] for all positions or
  /// [1, vocabulary] for the last one. The span is valid until the next call. Throws usage past `context` and for
  /// ids outside the vocabulary.
  virtual std::span<const float> forward(std::span<const std::int32_t> ids, bool all_positions) = 0;
  virtual double load_seconds() const noexcept = 0;
  /// Of the layers with 4-bit experts, each distinct plan once; empty when no expert is in 4 bits.
  virtual std::vector<Plan> expert_plans() const { return {}; }
};

/// Runs the prompt, then one token at a time, until a stop id, `max_new_tokens` or the end of the context. `on_text`
/// gets each piece of complete UTF-8 as it is made; what it throws ends the text. Resets the model first. Throws usage
/// for an empty prompt, one longer than the context, ids outside the vocabulary, sampling out of range, max_new_tokens
/// < 1.
GenerateResult generate(Model& model, std::span<const std::int32_t> prompt_ids, std::int64_t max_new_tokens,
                        const SamplingOptions& sampling, const std::function<void(std::string_view)>& on_text = {});
/// Non-overlapping windows as in docs/cli.md "eval". `progress(done, total)` per window. Resets
/// the model. Throws usage when the text has no whole window, bad_input when the model has no tokenizer.
EvalResult evaluate(Model& model, std::string_view text, std::int64_t window,
                    const std::function<void(std::int64_t, std::int64_t)>& progress = {});
/// Compares with a reference.json (docs/cli.md "verify model"). `logit_tolerance` is absolute. A greedy id matches when
/// its logit is within `greedy_tolerance` of the largest one (0: it must be the first of the largest). bf16 activations
/// cannot promise the order of near ties: pass twice the logit tolerance, since either logit may be off by it. Throws
/// bad_input for a file that is no such reference or has nothing to compare; a difference is a result, not an error.
VerifyModelResult verify_model(Model& model, const std::string& reference_file, double logit_tolerance,
                               double greedy_tolerance = 0);
/// Names of the supported architectures, for messages. Pure.
std::vector<std::string> known_architectures();

}  // namespace fourfold
