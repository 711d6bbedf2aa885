#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <cukiln/log.hpp>

namespace cukiln {

/// A sink that may be empty, with formatting that costs nothing then.
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
      sink_(level, fmt::format(format, std::forward<Args>(args)...));
    }
  }
  LogSink sink_;
};

}  // namespace cukiln
