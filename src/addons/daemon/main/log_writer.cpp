// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/main/log_writer.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/printable.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::chrono::seconds kFinalWait{1};

/// Writes some of the bytes to standard error. Waits up to 100 ms for a slow reader. Returns the
/// bytes that are left; none if it cannot be written at all.
std::string_view write_some(std::string_view bytes) {
  constexpr int kWaitMs = 100;
  constexpr std::size_t kPipeBytes = 4096;  // a pipe that is ready takes as many without blocking
  pollfd polled{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&polled, 1, kWaitMs) <= 0) {
    return bytes;
  }
  const ssize_t written = ::write(STDERR_FILENO, bytes.data(), std::min(bytes.size(), kPipeBytes));
  if (written < 0) {
    return errno == EINTR || errno == EAGAIN ? bytes : std::string_view();
  }
  return bytes.substr(static_cast<std::size_t>(written));
}

}  // namespace

LogWriter::LogWriter() : thread_([this] { run(); }) {}

LogWriter::~LogWriter() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LogWriter::write(std::string_view message) {
  const std::string line = fmt::format("cukilnd: {}\n", printable(message));
  const MutexLock lock(mutex_);
  if (queued_.size() + line.size() > kMaxQueuedBytes) {
    ++dropped_;
    return;
  }
  queued_ += line;
  changed_.notify_one();
}

void LogWriter::run() {
  MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) { return ending_ || !queued_.empty(); });
    std::string lines = std::exchange(queued_, {});
    if (const std::uint64_t dropped = std::exchange(dropped_, 0); dropped != 0) {
      lines += fmt::format("cukilnd: {} messages were dropped: the log was not read\n", dropped);
    }
    if (lines.empty()) {
      return;  // ending
    }
    std::optional<std::chrono::steady_clock::time_point> end;
    for (std::string_view left = lines; !left.empty();) {
      if (ending_ && !end) {
        end = std::chrono::steady_clock::now() + kFinalWait;
      }
      lock.unlock();
      left = write_some(left);
      lock.lock();
      if (end && std::chrono::steady_clock::now() >= *end) {
        return;
      }
    }
  }
}

}  // namespace cukiln::daemon
