// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <utility>

namespace cukiln {

/// State of one process. A forked child makes its own and never uses or destroys its copy of the
/// parent's: a mutex in it may be locked by a thread that the child does not have, and the workers
/// and sockets that it owns are the parent's. Threads: safe.
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

  /// This process's state. The first call in a forked child constructs it from `args`.
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

  /// This process's state; null in a forked child that has not called `get` yet.
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
