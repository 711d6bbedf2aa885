#include "store/fork_gate.hpp"

#include <pthread.h>

#include <mutex>
#include <new>

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateRWLockReleased(const char* file, int line, const volatile void* lock,
                                       long is_write);
#endif

namespace cukiln {

namespace {

struct Gate {
  pthread_rwlock_t lock;
  std::mutex mutex;  // of the list; a fork needs it no more once it has the lock
  ForkGate::Guarded* first = nullptr;

  Gate() { initialise(); }

  void initialise() noexcept {
    pthread_rwlockattr_t attributes;
    ::pthread_rwlockattr_init(&attributes);
    // A fork must not starve behind a stream of lookups.
    ::pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    ::pthread_rwlock_init(&lock, &attributes);
    ::pthread_rwlockattr_destroy(&attributes);
  }
};

// Never destroyed: a thread may still be in a lookup, or fork, while the process exits.
Gate& gate() noexcept {
  alignas(Gate) static unsigned char storage[sizeof(Gate)];
  static Gate* const made = new (storage) Gate;
  return *made;
}

thread_local int passes = 0;
// A fork from inside an operation (a log sink that forks) can only go on as it is.
thread_local bool fork_from_within = false;

}  // namespace

struct ForkGate::Handlers {
  static void before() {
    fork_from_within = passes > 0;
    if (fork_from_within) {
      return;
    }
    ::pthread_rwlock_wrlock(&gate().lock);
    for (ForkGate::Guarded* one = gate().first; one != nullptr; one = one->next_) {
      one->before_fork();
    }
  }
  static void after_in_parent() {
    if (!fork_from_within) {
      ::pthread_rwlock_unlock(&gate().lock);
    }
  }
  static void after_in_child() {
    if (!fork_from_within) {
      // Not an unlock: glibc knows a write lock by the number of its thread, and that has changed.
#if defined(__SANITIZE_THREAD__)
      AnnotateRWLockReleased(__FILE__, __LINE__, &gate().lock, 1);
#endif
      gate().initialise();
    }
  }
};

ForkGate::Pass::Pass() noexcept {
  static const int installed =
      ::pthread_atfork(Handlers::before, Handlers::after_in_parent, Handlers::after_in_child);
  static_cast<void>(installed);  // ENOMEM: then a child finds the parent's handles, and leaves them
  if (passes++ == 0) {
    ::pthread_rwlock_rdlock(&gate().lock);
  }
}

ForkGate::Pass::~Pass() {
  if (--passes == 0) {
    ::pthread_rwlock_unlock(&gate().lock);
  }
}

ForkGate::Guarded::Guarded() {
  const std::lock_guard hold(gate().mutex);
  next_ = gate().first;
  if (next_ != nullptr) {
    next_->previous_ = this;
  }
  gate().first = this;
}

ForkGate::Guarded::~Guarded() {
  const std::lock_guard hold(gate().mutex);
  (previous_ != nullptr ? previous_->next_ : gate().first) = next_;
  if (next_ != nullptr) {
    next_->previous_ = previous_;
  }
}

}  // namespace cukiln
