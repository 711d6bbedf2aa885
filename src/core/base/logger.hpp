// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <cukiln/log.hpp>

namespace cukiln {

/// Formats messages for a log sink. If the sink is empty, nothing is formatted.
class Logger {
 public:
  Logger() = default;
  explicit Logger(LogSink sink) : sink_(std::move(sink)) {}

  explicit operator bool() const noexcept { return static_cast<bool>(sink_); }

  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::error, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::warn, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::info, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::debug, format, std::forward<Args>(args)...);
  }

 private:
  template <class... Args>
  void write(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (sink_) {
      deliver(level, format, fmt::make_format_args(args...));
    }
  }
  /// Drops the message if the sink throws or memory is exhausted.
  void deliver(LogLevel level, fmt::string_view format, fmt::format_args args) const noexcept;

  LogSink sink_;
};

}  // namespace cukiln
