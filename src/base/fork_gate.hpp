// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include <cukiln/export.hpp>

namespace cukiln {

/// Lets fork() happen only where a child can go on. A child has one thread and a copy of everything
/// else: a mutex that another thread of its parent held stays locked there for ever, and what that
/// thread was changing stays half changed. So a fork waits until no thread holds a Pass, and every
/// mutex of ours that guards data is taken under one (ForkSafeLock). What belongs to threads and
/// lasts, an in-flight compile or a worker, cannot be waited for: it is a ProcessLocal.
///
/// SQLite besides forbids carrying an open connection across a fork: its per-process table of locks
/// would claim, in the child, locks that only the parent has. Idle connections are closed before a
/// fork (Guarded); parent and child open theirs again when they need one.
///
/// Process-wide by nature, like fork itself. A callback of the host's that runs under a Pass (a log
/// sink) may fork; its child must exec or exit and not return to us.
class ForkGate {
 public:
  /// Held by every operation of a store, and by who holds a mutex; a thread may hold several.
  /// Nothing that takes long, and nothing that another thread must do, is waited for under one.
  /// Exported: libcukiln_nvfp4 takes passes of this gate, a process has one.
  class CUKILN_API Pass {
   public:
    Pass() noexcept;
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
  };

  /// What closes its connections before a fork. Register and unregister while holding a Pass.
  class Guarded {
   public:
    Guarded();
    virtual ~Guarded();
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    /// No operation is running when this is called.
    virtual void before_fork() noexcept = 0;

   private:
    friend class ForkGate;
    Guarded* previous_ = nullptr;
    Guarded* next_ = nullptr;
  };

 private:
  struct Handlers;
};

/// A std::lock_guard that a fork waits for.
class [[nodiscard]] ForkSafeLock {
 public:
  explicit ForkSafeLock(std::mutex& mutex) : lock_(mutex) {}

 private:
  const ForkGate::Pass pass_;  // before the mutex, and longer
  const std::lock_guard<std::mutex> lock_;
};

}  // namespace cukiln
