// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cukiln/export.hpp>

#include "core/base/mutex.hpp"

namespace cukiln {

inline namespace v0 {  // exported, as the public interface is

/// Makes fork() safe in a host with threads. A child has one thread and a copy of all memory: a
/// mutex that another thread of the parent held stays locked there forever, and data that it was
/// changing stays inconsistent. So fork() waits until no thread holds a Pass, and every mutex of
/// the library that guards data is taken under a Pass (ForkSafeLock). State that lasts longer, such
/// as an in-flight compile or a worker, cannot be waited for and is a ProcessLocal instead.
///
/// SQLite forbids using a connection across a fork: in the child, its per-process table of locks
/// would list locks that only the parent holds. Idle connections are therefore closed before a fork
/// (Guarded), and parent and child open new ones when they need them.
///
/// Process-wide, like fork itself. A callback of the host that runs under a Pass (a log sink) may
/// fork, but its child must call exec or exit and must not return into the library.
class ForkGate {
 public:
  /// Held during every store operation and while a mutex is held. A thread may hold several. Must
  /// not be held during anything that takes long or that depends on another thread.
  /// Exported: libcukiln_nvfp4 takes passes of this gate, a process has one.
  class CUKILN_API Pass {
   public:
    Pass() noexcept;
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
  };

  /// An object that closes its connections before a fork. Construct and destroy it while holding a
  /// Pass.
  class Guarded {
   public:
    Guarded();
    virtual ~Guarded();
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    /// Called while no thread holds a Pass.
    virtual void before_fork() noexcept = 0;

   private:
    friend class ForkGate;
    Guarded* previous_ = nullptr;
    Guarded* next_ = nullptr;
  };

 private:
  struct Handlers;
};

}  // namespace v0

/// A MutexLock under a Pass: no fork happens while it is held. The analysis reads the annotations
/// and not the bodies: it does not follow a lock that is a member.
class [[nodiscard]] CUKILN_THREAD_ANNOTATION(scoped_lockable) ForkSafeLock {
 public:
  explicit ForkSafeLock(Mutex& mutex)
      CUKILN_THREAD_ANNOTATION(acquire_capability(mutex)) CUKILN_NO_THREAD_SAFETY_ANALYSIS
      : lock_(mutex) {}
  // NOLINTNEXTLINE(modernize-use-equals-default): the attribute needs a body
  ~ForkSafeLock() CUKILN_THREAD_ANNOTATION(release_capability()) CUKILN_NO_THREAD_SAFETY_ANALYSIS {}
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;

 private:
  const ForkGate::Pass pass_;  // acquired before the mutex and released after it
  const MutexLock lock_;
};

}  // namespace cukiln
