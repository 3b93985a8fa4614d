// Reads a request, hands it to its system's model, and keeps that system's refusals apart from errors of the caller.
#include "plan/reference/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "core/check.h"

namespace fourfold {
namespace reference {

Request parse_request(std::string_view text) {
  Request request;
  std::size_t end = std::min(text.find(':'), text.size());
  request.system = text.substr(0, end);
  while (end < text.size()) {
    const std::size_t begin = end + 1;
    end = std::min(text.find(':', begin), text.size());
    const std::string_view option = text.substr(begin, end - begin);
    const std::size_t equals = option.find('=');
    check(equals != std::string_view::npos && equals > 0 && equals + 1 < option.size(), ErrorCode::usage,
          "reference \"{}\": option \"{}\" has no value; write SYSTEM:OPTION=VALUE, as b12x:block=64", text, option);
    const std::string key(option.substr(0, equals));
    for (const auto& [known, value] : request.options)
      check(known != key, ErrorCode::usage, "reference \"{}\": option {} is given twice; keep one", text, key);
    request.options.emplace_back(key, option.substr(equals + 1));
  }
  return request;
}

std::optional<std::string> word_option(const Request& request, std::string_view key,
                                       std::initializer_list<std::string_view> allowed) {
  for (const auto& [name, value] : request.options) {
    if (name != key) continue;
    check(std::find(allowed.begin(), allowed.end(), value) != allowed.end(), ErrorCode::usage,
          "reference {}: {}={} is none of its values; use {}", request.system, key, value, fmt::join(allowed, ", "));
    return value;
  }
  return std::nullopt;
}

std::optional<std::int64_t> number_option(const Request& request, std::string_view key,
                                          std::initializer_list<std::int64_t> allowed) {
  for (const auto& [name, value] : request.options) {
    if (name != key) continue;
    std::int64_t number = -1;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && stop == value.data() + value.size();
    check(whole && std::find(allowed.begin(), allowed.end(), number) != allowed.end(), ErrorCode::usage,
          "reference {}: {}={} is none of its values; use {}", request.system, key, value, fmt::join(allowed, ", "));
    return number;
  }
  return std::nullopt;
}

void check_options(const Request& request, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : request.options)
    check(std::find(known.begin(), known.end(), name) != known.end(), ErrorCode::usage,
          "reference {}: it has no option \"{}\"; {}", request.system, name,
          known.size() == 0 ? std::string("it has none") : fmt::format("known: {}", fmt::join(known, ", ")));
}

std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (const std::int64_t factor : factors) result = checked_mul(result, factor, "a buffer of the reference");
  return result;
}

void Bill::align() {
  bytes_ = round_up(checked_add(bytes_, alignment_, "the reference's arena") - alignment_, alignment_);
}

void Bill::add(std::string name, std::int64_t bytes, std::string formula, std::string numbers) {
  align();
  bytes_ = checked_add(bytes_, bytes, "the reference's arena");
  segments.push_back({std::move(name), std::move(formula), std::move(numbers), static_cast<std::uint64_t>(bytes)});
}

}  // namespace reference

std::vector<std::string> reference_systems() { return {"b12x", "b12x-trellis", "flashinfer", "marlin"}; }

ReferenceBill reference_bill(std::string_view text, const Caps& caps, const Device& device) {
  const reference::Request request = reference::parse_request(text);
  ReferenceBill bill;
  try {
    if (request.system == "b12x" || request.system == "b12x-trellis")
      bill = reference::b12x_bill(request, caps, device);
    else if (request.system == "flashinfer")
      bill = reference::flashinfer_bill(request, caps, device);
    else if (request.system == "marlin")
      bill = reference::marlin_bill(request, caps, device);
    else
      fail(ErrorCode::usage, "reference \"{}\" is no system that can be priced; known: {}", request.system,
           fmt::join(reference_systems(), ", "));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    bill = {};
    bill.refused = error.what();
  }
  bill.system = text;
  return bill;
}

}  // namespace fourfold
