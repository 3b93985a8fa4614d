// The public Model: a decoder with its tokenizer, its stop ids and what loading cost.
#include "fourfold/model.h"

#include <chrono>
#include <filesystem>

#include "core/check.h"
#include "model/decoder.h"
#include "model/generation_config.h"
#include "model/model_load.h"

namespace fourfold {

namespace {

class LoadedModel final : public Model {
 public:
  LoadedModel(const std::string& folder, std::shared_ptr<Backend> backend, const ModelOptions& options) {
    const auto start = std::chrono::steady_clock::now();
    ModelLoader loader(folder, std::move(backend), options);
    stop_ids_ = load_stop_ids(folder);
    const std::filesystem::path tokenizer = std::filesystem::path(folder) / "tokenizer.json";
    if (std::error_code ignored; std::filesystem::exists(tokenizer, ignored))
      tokenizer_ = Tokenizer::load(tokenizer.string());
    decoder_ = loader.load();
    format_text_ = loader.format_text();
    expert_plans_ = loader.expert_plans();
    load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  std::int64_t vocabulary() const noexcept override { return decoder_->vocabulary(); }
  std::int64_t context() const noexcept override { return decoder_->context(); }
  const std::vector<std::int32_t>& stop_ids() const noexcept override { return stop_ids_; }
  const Tokenizer* tokenizer() const noexcept override { return tokenizer_.get(); }
  std::string format_text() const override { return format_text_; }
  std::uint64_t weight_bytes() const noexcept override { return decoder_->weight_bytes(); }
  void reset() override { decoder_->reset(); }
  std::span<const float> forward(std::span<const std::int32_t> ids, bool all_positions) override {
    return decoder_->forward(ids, all_positions);
  }
  double load_seconds() const noexcept override { return load_seconds_; }
  std::vector<Plan> expert_plans() const override { return expert_plans_; }

 private:
  std::unique_ptr<Decoder> decoder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::int32_t> stop_ids_;
  std::string format_text_;
  std::vector<Plan> expert_plans_;
  double load_seconds_ = 0;
};

}  // namespace

std::unique_ptr<Model> Model::load(const std::string& folder, std::shared_ptr<Backend> backend,
                                   const ModelOptions& options) {
  check(backend != nullptr, ErrorCode::usage, "Model::load needs a backend, for instance cpu_backend()");
  return std::make_unique<LoadedModel>(folder, std::move(backend), options);
}

}  // namespace fourfold
