// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <utility>

namespace cukiln {

/// State that belongs to one process: a forked child makes its own, and leaves its parent's alone,
/// because a mutex in it may be locked by a thread that the child does not have, and what it owns
/// (workers, sockets) is the parent's. The copy of the parent's is never destroyed. Threads: safe.
template <class T>
class ProcessLocal {
 public:
  template <class... Args>
  explicit ProcessLocal(Args&&... args) : made_(new Made(std::forward<Args>(args)...)) {}
  ~ProcessLocal() {
    Made* const made = made_.load();
    if (made->owner == ::getpid()) {
      delete made;
    }
  }
  ProcessLocal(const ProcessLocal&) = delete;
  ProcessLocal& operator=(const ProcessLocal&) = delete;

  /// This process's; made of `args` by the first call in a forked child.
  template <class... Args>
  T& get(const Args&... args) {
    Made* made = made_.load();
    while (made->owner != ::getpid()) {
      auto fresh = std::make_unique<Made>(args...);
      if (made_.compare_exchange_strong(made, fresh.get())) {
        return fresh.release()->value;
      }
    }
    return made->value;
  }

  /// This process's, if it has one: null in a forked child that has not asked yet.
  T* existing() noexcept {
    Made* const made = made_.load();
    return made->owner == ::getpid() ? &made->value : nullptr;
  }

 private:
  struct Made {
    template <class... Args>
    explicit Made(Args&&... args) : value(std::forward<Args>(args)...) {}
    const pid_t owner = ::getpid();
    T value;
  };
  std::atomic<Made*> made_;
};

}  // namespace cukiln
