// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <list>
#include <memory>

#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Closes clients' descriptors in threads of its own, because the client decides how long a close
/// takes: a socket may linger, and a file system in user space may not answer. The same holds for
/// the socket of a session, whose unread messages may contain descriptors. One connection's closes
/// occupy one thread. Threads: the loop's only.
class DescriptorCloser {
 public:
  struct Limits {
    unsigned threads = 16;           ///< started when the others are occupied
    std::size_t max_pending = 1024;  ///< from here on connections are rejected
  };
  /// A descriptor and the memory to queue it, so that closing allocates nothing.
  class Slot {
   public:
    explicit Slot(std::uint64_t connection) { one_.push_back({connection, {}}); }

   private:
    friend class DescriptorCloser;
    struct Item {
      std::uint64_t connection;
      UniqueFd descriptor;
    };
    std::list<Item> one_;
  };

  /// Errors: internal (no thread can be started).
  static Result<std::unique_ptr<DescriptorCloser>> create(const Limits& limits);
  /// Waits at most a second for closes that have not ended: their threads may be blocked for long.
  ~DescriptorCloser();
  DescriptorCloser(const DescriptorCloser&) = delete;
  DescriptorCloser& operator=(const DescriptorCloser&) = delete;

  void close(UniqueFd descriptor, Slot slot) noexcept;
  void close(UniqueFd descriptor, std::uint64_t connection) {
    close(std::move(descriptor), Slot(connection));
  }

  /// Whether so many closes are pending that clients must not send further descriptors.
  bool is_full() const;

 private:
  struct State;
  explicit DescriptorCloser(const Limits& limits);

  const Limits limits_;
  const std::shared_ptr<State> state_;  // shared with the threads, which may outlive this
};

}  // namespace cukiln::daemon
