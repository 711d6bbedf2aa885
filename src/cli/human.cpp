// SPDX-License-Identifier: Apache-2.0
#include "cli/human.hpp"

#include <charconv>
#include <cmath>
#include <ctime>

#include "core/base/result.hpp"

namespace cukiln::cli {

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1024) {
    return fmt::format("{} B", bytes);
  }
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_ms(double milliseconds) {
  if (milliseconds < 9.95) {
    return fmt::format("{:.1f} ms", milliseconds);
  }
  if (milliseconds < 999.5) {
    return fmt::format("{:.0f} ms", milliseconds);
  }
  const double seconds = milliseconds / 1000;
  if (seconds < 9.995) {
    return fmt::format("{:.2f} s", seconds);
  }
  if (seconds < 99.95) {
    return fmt::format("{:.1f} s", seconds);
  }
  const std::int64_t whole = std::llround(seconds);
  return whole < 3600 ? fmt::format("{} min {} s", whole / 60, whole % 60)
                      : fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string human_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string human_age(std::int64_t seconds) {
  if (seconds < 5) {  // negative if the clock was set back
    return "now";
  }
  if (seconds < 60) {
    return fmt::format("{} s", seconds);
  }
  if (seconds < 3600) {
    return fmt::format("{} min", seconds / 60);
  }
  if (seconds < 2 * 86'400) {
    return fmt::format("{} h", seconds / 3600);
  }
  return fmt::format("{} d", seconds / 86'400);
}

std::string human_time(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  char text[32];
  if (::localtime_r(&time, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) == 0) {
    return std::to_string(unix_s);
  }
  return text;
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", human_count(count), count == 1 ? one : many);
}

Result<std::int64_t> parse_age(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const std::int64_t seconds = unit == "s"   ? 1
                               : unit == "m" ? 60
                               : unit == "h" ? 3600
                               : unit == "d" ? 86'400
                               : unit == "w" ? 7 * 86'400
                                             : 0;
  constexpr std::int64_t kMaxNumber = 1'000'000'000;
  if (error != std::errc{} || seconds == 0 || number < 0 || number > kMaxNumber) {
    return make_error(
        ErrorCode::invalid_argument,
        "invalid duration \"{}\"; expected a number and a unit, such as 30d, 12h, 2w, 45m or 90s",
        text);
  }
  return number * seconds;
}

}  // namespace cukiln::cli
