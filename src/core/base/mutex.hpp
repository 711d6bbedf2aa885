// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

/// The annotations of clang's thread-safety analysis, which scripts/tidy runs. GCC ignores them.
#if defined(__clang__)
#define CUKILN_THREAD_ANNOTATION(attribute) __attribute__((attribute))
#else
#define CUKILN_THREAD_ANNOTATION(attribute)
#endif
/// Of a member: read and written only while the mutex is held.
#define CUKILN_GUARDED_BY(mutex) CUKILN_THREAD_ANNOTATION(guarded_by(mutex))
/// Of a pointer: what it points to is read and written only while the mutex is held.
#define CUKILN_PT_GUARDED_BY(mutex) CUKILN_THREAD_ANNOTATION(pt_guarded_by(mutex))
/// Of a function: its caller holds the mutexes.
#define CUKILN_REQUIRES(...) CUKILN_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
/// Of a function: it takes the mutexes itself, so its caller does not hold them.
#define CUKILN_EXCLUDES(...) CUKILN_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
/// Of a function that the analysis cannot follow; the reason stands beside it.
#define CUKILN_NO_THREAD_SAFETY_ANALYSIS CUKILN_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace cukiln {

/// A std::mutex that the thread-safety analysis knows.
class CUKILN_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// Holds a Mutex from construction to destruction, except between unlock() and lock().
class [[nodiscard]] CUKILN_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) CUKILN_THREAD_ANNOTATION(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  // The attribute needs a body.
  // NOLINTNEXTLINE(modernize-use-equals-default)
  ~MutexLock() CUKILN_THREAD_ANNOTATION(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() CUKILN_THREAD_ANNOTATION(acquire_capability()) { lock_.lock(); }
  void unlock() CUKILN_THREAD_ANNOTATION(release_capability()) { lock_.unlock(); }

 private:
  friend class ConditionVariable;
  std::unique_lock<std::mutex> lock_;
};

/// A std::condition_variable for Mutex. A wait returns with the lock held, as it was before. A
/// predicate that reads guarded members is annotated: `[&]() CUKILN_REQUIRES(mutex_) { … }`.
class ConditionVariable {
 public:
  void wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  template <class Predicate>
  void wait(MutexLock& lock, Predicate&& is_true) {
    changed_.wait(lock.lock_, std::forward<Predicate>(is_true));
  }
  /// False when the time ran out and the predicate is still false.
  template <class Rep, class Period, class Predicate>
  bool wait_for(MutexLock& lock, std::chrono::duration<Rep, Period> duration, Predicate&& is_true) {
    return changed_.wait_for(lock.lock_, duration, std::forward<Predicate>(is_true));
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(MutexLock& lock, std::chrono::time_point<Clock, Duration> time) {
    return changed_.wait_until(lock.lock_, time);
  }
  template <class Clock, class Duration, class Predicate>
  bool wait_until(MutexLock& lock, std::chrono::time_point<Clock, Duration> time,
                  Predicate&& is_true) {
    return changed_.wait_until(lock.lock_, time, std::forward<Predicate>(is_true));
  }
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace cukiln
