// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/mutex.hpp"
#include "cli/terminal.hpp"

#include <cukiln/log.hpp>

namespace cukiln::cli {

/// Everything that goes to stderr: messages, and on a terminal one status line below them.
/// Threads: safe.
class Messages {
 public:
  Messages(const Terminal& terminal, LogLevel level) : terminal_(terminal), level_(level) {}
  ~Messages() { set_status({}); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  const Terminal& terminal() const noexcept { return terminal_; }

  bool shows(LogLevel level) const noexcept { return level <= level_; }

  void log(LogLevel level, std::string_view text);
  void warn(std::string_view text) { log(LogLevel::warn, text); }
  /// Whether something with this text in it was said, so that a command need not say it again.
  bool has_printed(std::string_view text);
  void info(std::string_view text) { log(LogLevel::info, text); }

  /// Text as it is, without a label, whatever the level.
  void print(std::string_view text);

  /// Replaces the status line; empty takes it away. Does nothing where there is no terminal.
  void set_status(std::string line);

  /// Where the library's messages go.
  LogSink sink();

 private:
  void write(const std::string& text);

  const Terminal terminal_;
  const LogLevel level_;
  Mutex mutex_;
  std::string status_;
  std::string said_;
};

}  // namespace cukiln::cli
