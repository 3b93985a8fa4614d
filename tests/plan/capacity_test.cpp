// The largest capacity that fits, what a larger one would reach, and formulas with numbers in them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <random>
#include <set>
#include <string>

#include "fourfold/error.h"
#include "fourfold/plan.h"
#include "random_caps.h"

namespace fourfold {
namespace {

Caps caps_of(std::string_view problem) { return parse_problem(problem).caps; }

std::uint64_t bytes_at(Caps caps, const Device& device, std::int64_t tokens) {
  caps.max_tokens = tokens;
  return required_workspace_bytes(caps, device);
}

TEST(LargestMaxTokens, FitsAndItsNeighbourDoesNot) {
  std::mt19937_64 random(31);
  int exact = 0;
  for (int round = 0; round < 500; ++round) {
    Caps caps = random_caps(random);
    caps.max_tokens = 1;
    if (caps.activation_dtype == DType::f32) caps.activation_dtype = DType::bf16;
    const Device device = round % 2 ? device_preset("h200") : random_cpu(random);
    const std::uint64_t budget = static_cast<std::uint64_t>(log_uniform(random, 1 << 20, std::int64_t{1} << 34));
    const std::int64_t found = largest_max_tokens(caps, device, budget, 1'000'000);
    if (found < 0) continue;
    EXPECT_LE(bytes_at(caps, device, found), budget);
    if (found == 1'000'000) continue;
    ++exact;
    Caps next = caps;
    next.max_tokens = found + 1;
    EXPECT_TRUE(!can_implement(next, device) || required_workspace_bytes(next, device) > budget) << found;
  }
  EXPECT_GT(exact, 100);
}

TEST(LargestMaxTokens, ExactAtTheEdgeOfAByte) {
  const Caps caps = caps_of("t1 k8 e160 h6144 i512 nvfp4 bf16 silu");
  const Device device = device_preset("h200");
  for (const std::int64_t tokens : {1, 64, 1024, 3072}) {
    const std::uint64_t bytes = bytes_at(caps, device, tokens);
    EXPECT_GE(largest_max_tokens(caps, device, bytes), tokens);
    EXPECT_LT(largest_max_tokens(caps, device, bytes - 1), tokens);
  }
}

TEST(LargestMaxTokens, NothingFitsInNothing) {
  const Caps caps = caps_of("t1 k8 e160 h6144 i512");
  const std::int64_t found = largest_max_tokens(caps, device_preset("h200"), 0);
  EXPECT_EQ(found, bytes_at(caps, device_preset("h200"), 0) == 0 ? 0 : -1);
}

TEST(LargestMaxTokens, AProblemThatCannotRunIsRefused) {
  try {
    largest_max_tokens(caps_of("t1 k8 e160 h6145 i512"), device_preset("h200"), 1 << 30);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
}

TEST(UnreachableKernels, AreThoseOfALargerCapacityAndNoOther) {
  std::mt19937_64 random(32);
  int some = 0;
  for (int round = 0; round < 300; ++round) {
    Caps caps = random_caps(random);
    caps.max_tokens = log_uniform(random, 1, 5000);
    const Device device = random_cpu(random);
    const Plan small = plan(caps, device);
    const std::vector<std::string> here = small.kernels();
    for (const UnreachableKernel& kernel : unreachable_kernels(small)) {
      ++some;
      EXPECT_EQ(std::find(here.begin(), here.end(), kernel.kernel), here.end());
      EXPECT_GT(kernel.from_tokens, caps.max_tokens);
      Caps reaching = caps;
      reaching.max_tokens = kernel.from_tokens;
      const Plan larger = plan(reaching, device);
      const std::vector<std::string> there = larger.kernels();
      EXPECT_NE(std::find(there.begin(), there.end(), kernel.kernel), there.end()) << kernel.kernel;
      EXPECT_EQ(larger.workspace_bytes(), kernel.workspace_bytes);
      EXPECT_GE(kernel.workspace_bytes, small.workspace_bytes());
    }
  }
  EXPECT_GT(some, 20);
}

/// Value of "a * (b + c) * 2" and "min(a, b)": what formulas of segments are made of. -1 when it is none.
class Arithmetic {
 public:
  explicit Arithmetic(const std::string& text) : text_(text) {}
  std::int64_t value() {
    const std::int64_t result = sum();
    return at_ == text_.size() && ok_ ? result : -1;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    skip();
    return true;
  }
  std::int64_t atom() {
    skip();
    if (take('(')) {
      const std::int64_t inner = sum();
      ok_ = ok_ && take(')');
      return inner;
    }
    if (text_.compare(at_, 4, "min(") == 0) {
      at_ += 4;
      const std::int64_t left = sum();
      ok_ = ok_ && take(',');
      const std::int64_t right = sum();
      ok_ = ok_ && take(')');
      return std::min(left, right);
    }
    std::int64_t number = 0;
    ok_ = ok_ && at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]));
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])))
      number = number * 10 + (text_[at_++] - '0');
    skip();
    // "64 columns": words behind a number say of what.
    while (at_ < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[at_])) || text_[at_] == ' ')) ++at_;
    skip();
    return number;
  }
  std::int64_t product() {
    std::int64_t result = atom();
    for (;;) {
      if (take('*')) {
        result *= atom();
      } else if (take('/')) {
        const std::int64_t by = atom();
        ok_ = ok_ && by > 0;
        if (by > 0) result /= by;
      } else {
        return result;
      }
    }
  }
  std::int64_t sum() {
    std::int64_t result = product();
    for (;;) {
      if (take('+')) {
        result += product();
      } else if (take('-')) {
        result -= product();
      } else {
        return result;
      }
    }
  }

  std::string text_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

// What the numbers say must be what is reserved.
TEST(FormulaNumbers, ComputeTheBytesOfTheSegment) {
  std::mt19937_64 random(33);
  int computed = 0;
  for (int round = 0; round < 300; ++round) {
    Caps caps = random_caps(random);
    caps.max_tokens = log_uniform(random, 1, 5000);
    const bool gpu = round % 2 == 1;
    if (gpu && caps.activation_dtype == DType::f32) caps.activation_dtype = DType::f16;
    const Plan planned = plan(caps, gpu ? device_preset("h200") : random_cpu(random));
    for (const Segment& segment : planned.segments()) {
      const std::string numbers = formula_numbers(planned, segment);
      const std::int64_t value = Arithmetic(numbers).value();
      ASSERT_EQ(value, static_cast<std::int64_t>(segment.bytes))
          << segment.name << ": " << segment.formula << " is " << numbers;
      ++computed;
    }
  }
  EXPECT_GT(computed, 1000);
}

TEST(FormulaNumbers, OfAGpuNameNoCapsField) {
  const Plan planned = plan(caps_of("t64 k8 e160 h6144 i512 nvfp4 bf16 silu"), device_preset("h200"));
  for (const Segment& segment : planned.segments())
    for (const char* word : {"routes", "intermediate", "tokens", "experts"})
      EXPECT_EQ(formula_numbers(planned, segment).find(word), std::string::npos) << segment.name;
}

}  // namespace
}  // namespace fourfold
