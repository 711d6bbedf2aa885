// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/mutex.hpp"

namespace cukiln::daemon {

/// Writes the daemon's log to standard error in a thread of its own, so that no reader of it can
/// block the event loop. Characters that could forge a line or change a terminal are escaped,
/// because clients choose names. Above kMaxQueuedBytes messages are dropped and counted. Threads:
/// safe.
class LogWriter {
 public:
  LogWriter();
  /// Writes what is queued, for at most a second.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  void write(std::string_view message);

 private:
  static constexpr std::size_t kMaxQueuedBytes = 1 << 20;
  void run() CUKILN_EXCLUDES(mutex_);

  Mutex mutex_;
  ConditionVariable changed_;
  std::string queued_ CUKILN_GUARDED_BY(mutex_);  // whole lines
  std::uint64_t dropped_ CUKILN_GUARDED_BY(mutex_) = 0;
  bool ending_ CUKILN_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cukiln::daemon
