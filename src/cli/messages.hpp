// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "cli/terminal.hpp"
#include "core/base/mutex.hpp"

#include <cukiln/log.hpp>

namespace cukiln::cli {

/// Writes to stderr: messages, and on a terminal one status line below them. Thread-safe.
class Messages {
 public:
  Messages(const Terminal& terminal, LogLevel level) : terminal_(terminal), level_(level) {}
  ~Messages() { set_status({}); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  const Terminal& terminal() const noexcept { return terminal_; }

  bool shows(LogLevel level) const noexcept { return level <= level_; }

  /// Prints `warning: text` and the like, if the level is shown.
  void log(LogLevel level, std::string_view text);
  void warn(std::string_view text) { log(LogLevel::warn, text); }
  void info(std::string_view text) { log(LogLevel::info, text); }

  /// Prints text as it is, without a label, at every level.
  void print(std::string_view text);
  /// Returns whether `text` was printed before, alone or as part of a message.
  bool has_printed(std::string_view text);

  /// Replaces the status line; an empty one removes it. Does nothing if stderr is not a terminal.
  void set_status(std::string line);

  /// Returns a sink for the library's messages. It must not outlive this object.
  LogSink sink();

 private:
  void write(const std::string& text) CUKILN_REQUIRES(mutex_);

  const Terminal terminal_;
  const LogLevel level_;
  Mutex mutex_;
  std::string status_ CUKILN_GUARDED_BY(mutex_);
  std::string printed_ CUKILN_GUARDED_BY(mutex_);  // all text so far, for has_printed
};

}  // namespace cukiln::cli
