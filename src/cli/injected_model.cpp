// A model whose logits are wrong on purpose: proves that verify model sees a fault.
#include "injected_model.h"

#include <algorithm>
#include <limits>

namespace fourfold::cli {
namespace {

class InjectedModel final : public Model {
 public:
  InjectedModel(std::unique_ptr<Model> model, Inject inject) : model_(std::move(model)), inject_(inject) {}
  std::int64_t vocabulary() const noexcept override { return model_->vocabulary(); }
  std::int64_t context() const noexcept override { return model_->context(); }
  const std::vector<std::int32_t>& stop_ids() const noexcept override { return model_->stop_ids(); }
  const Tokenizer* tokenizer() const noexcept override { return model_->tokenizer(); }
  std::string format_text() const override { return model_->format_text(); }
  std::uint64_t weight_bytes() const noexcept override { return model_->weight_bytes(); }
  void reset() override { model_->reset(); }
  double load_seconds() const noexcept override { return model_->load_seconds(); }
  std::vector<Plan> expert_plans() const override { return model_->expert_plans(); }

  std::span<const float> forward(std::span<const std::int32_t> ids, bool all_positions) override {
    const std::span<const float> right = model_->forward(ids, all_positions);
    std::vector<float> wrong(right.begin(), right.end());
    switch (inject_) {
      case Inject::none:
        break;
      case Inject::nan:
        // The largest: references hold the largest logits of a position, so this one is compared.
        if (!wrong.empty()) *std::max_element(wrong.begin(), wrong.end()) = std::numeric_limits<float>::quiet_NaN();
        break;
      case Inject::zero:
        std::fill(wrong.begin(), wrong.end(), 0.0f);
        break;
      case Inject::stale: {
        std::vector<float> before = std::move(previous_);
        previous_ = wrong;
        before.resize(wrong.size(), 0.0f);
        wrong = std::move(before);
        break;
      }
      case Inject::swap:
        swap_extremes(wrong);
        break;
    }
    logits_ = std::move(wrong);
    return logits_;
  }

 private:
  void swap_extremes(std::vector<float>& logits) const {
    const std::int64_t width = model_->vocabulary();
    for (auto row = logits.begin(); width > 0 && logits.end() - row >= width; row += width) {
      const auto [smallest, largest] = std::minmax_element(row, row + width);
      std::iter_swap(smallest, largest);
    }
  }

  std::unique_ptr<Model> model_;
  Inject inject_;
  std::vector<float> logits_, previous_;
};

}  // namespace

std::unique_ptr<Model> inject_into(std::unique_ptr<Model> model, Inject inject) {
  if (inject == Inject::none) return model;
  return std::make_unique<InjectedModel>(std::move(model), inject);
}

}  // namespace fourfold::cli
