// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "core/base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Closes clients' descriptors in a thread of its own, because the client decides how long a close
/// takes: a socket may linger, and a file system in user space may not answer. The same holds for
/// the socket of a session, whose unread messages may contain descriptors. Memory files, whose
/// close ends, are closed elsewhere, so that none waits here. Threads: the loop's only.
class ClosingThread {
 public:
  /// Descriptors in the memory that queues them, so that closing allocates nothing.
  using Descriptors = std::list<UniqueFd>;

  /// From `max_pending` descriptors on, connections are rejected. Errors: internal (no thread).
  static Result<std::unique_ptr<ClosingThread>> create(std::size_t max_pending = 1024);
  /// Waits at most a second for the thread, which may be blocked for long.
  ~ClosingThread();
  ClosingThread(const ClosingThread&) = delete;
  ClosingThread& operator=(const ClosingThread&) = delete;

  void close(Descriptors descriptors) noexcept;
  void close(UniqueFd descriptor);

  /// Whether so many closes are pending that clients must not send further descriptors.
  bool is_full() const;

 private:
  struct State;
  explicit ClosingThread(std::size_t max_pending);

  const std::size_t max_pending_;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
};

}  // namespace cukiln::daemon
