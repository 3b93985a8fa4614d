// A request for another system's bill, as text: SYSTEM[:OPTION=VALUE]..., and what all systems' models share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fourfold/reference.h"

namespace fourfold::reference {

struct Request {
  std::string system;
  std::vector<std::pair<std::string, std::string>> options;  ///< as written, each key once
};

/// Throws usage for an option without a value and for one given twice. Pure.
Request parse_request(std::string_view text);

/// The value of `key` when it is there: one of `allowed`, or usage naming them. Pure.
std::optional<std::int64_t> number_option(const Request& request, std::string_view key,
                                          std::initializer_list<std::int64_t> allowed);
std::optional<std::string> word_option(const Request& request, std::string_view key,
                                       std::initializer_list<std::string_view> allowed);
/// Throws usage unless every option of the request is one of `known`. Pure.
void check_options(const Request& request, std::initializer_list<std::string_view> known);

/// Buffers one after the other, each start a multiple of `alignment`; the end is not padded.
class Bill {
 public:
  explicit Bill(std::int64_t alignment) : alignment_(alignment) {}
  /// Throws unsupported when the sum leaves 63 bits.
  void add(std::string name, std::int64_t bytes, std::string formula, std::string numbers);
  /// The next start.
  void align();
  std::int64_t bytes() const noexcept { return bytes_; }
  std::vector<ReferenceSegment> segments = {};

 private:
  std::int64_t alignment_;
  std::int64_t bytes_ = 0;
};

/// a x b x c ... for sizes; throws unsupported when it leaves 63 bits.
std::int64_t product(std::initializer_list<std::int64_t> factors);

// One model each; `request` has passed parse_request.
ReferenceBill b12x_bill(const Request& request, const Caps& caps, const Device& device);
ReferenceBill flashinfer_bill(const Request& request, const Caps& caps, const Device& device);
ReferenceBill marlin_bill(const Request& request, const Caps& caps, const Device& device);

}  // namespace fourfold::reference
