// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "core/base/result.hpp"

#include <cukiln/settings.hpp>

namespace cukiln {

Result<std::uint64_t> v0::parse_bytes(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') {
    unit.remove_prefix(1);
  }
  int shift = -1;
  if (unit.empty() || unit == "B") {
    shift = 0;
  } else {
    const std::size_t power = std::string_view("KMGT").find(unit.front() & ~0x20);
    const std::string_view rest = unit.substr(1);
    if (power != std::string_view::npos &&
        (rest.empty() || rest == "B" || rest == "b" || rest == "iB")) {
      shift = 10 * (static_cast<int>(power) + 1);
    }
  }
  if (error != std::errc{} || shift < 0 || number > (UINT64_MAX >> shift)) {
    return make_error(
        ErrorCode::invalid_argument,
        "invalid size \"{}\": expected a number and a unit, such as 2GiB, 512M or 1048576", text);
  }
  return number << shift;
}

}  // namespace cukiln
