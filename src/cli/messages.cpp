// SPDX-License-Identifier: Apache-2.0
#include "cli/messages.hpp"

#include <cstdio>

#include "cli/text.hpp"

namespace cukiln::cli {

namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

}  // namespace

void Messages::log(LogLevel level, std::string_view text) {
  if (!shows(level)) {
    return;
  }
  std::string line;
  switch (level) {
    case LogLevel::error: line = terminal_.paint(Color::red, "error:"); break;
    case LogLevel::warn: line = terminal_.paint(Color::yellow, "warning:"); break;
    case LogLevel::info: line = terminal_.paint(Color::cyan, "note:"); break;
    case LogLevel::debug: line = terminal_.paint(Color::dim, "debug:"); break;
  }
  print(line + " " + printable_lines(text) + "\n");
}

bool Messages::has_printed(std::string_view text) {
  const MutexLock lock(mutex_);
  return printed_.find(text) != std::string::npos;
}

void Messages::print(std::string_view text) {
  const MutexLock lock(mutex_);
  printed_ += text;
  write(std::string(text));
}

void Messages::set_status(std::string line) {
  if (!terminal_.can_redraw()) {
    return;
  }
  const MutexLock lock(mutex_);
  if (line.empty() && status_.empty()) {
    return;
  }
  status_ = std::move(line);
  write({});
}

void Messages::write(const std::string& text) {
  // One write call, so that lines of several processes on one terminal do not interleave.
  const bool has_line = terminal_.can_redraw();
  const std::string all =
      (has_line ? std::string(kEraseLine) : std::string()).append(text).append(status_);
  std::fwrite(all.data(), 1, all.size(), stderr);
  std::fflush(stderr);
}

LogSink Messages::sink() {
  return [this](LogLevel level, std::string_view message) { log(level, message); };
}

}  // namespace cukiln::cli
