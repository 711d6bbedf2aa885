// SPDX-License-Identifier: Apache-2.0
#include "base/fork_gate.hpp"

#include <pthread.h>

#include <mutex>

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateRWLockReleased(const char* file, int line, const volatile void* lock,
                                       long is_write);
#endif

namespace cukiln {

namespace {

// Initialised before any code runs, and never destroyed: a thread may be in a lookup, or fork,
// while the process exits. Writers first: a fork must not starve behind a stream of lookups.
pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
constinit std::mutex list_mutex;  // a fork that has the gate needs it no more
ForkGate::Guarded* first_guarded = nullptr;

// initial-exec: allocated with the thread. At its first use there may be no memory for it.
#define CUKILN_TLS __attribute__((tls_model("initial-exec")))
thread_local constinit int passes CUKILN_TLS = 0;
// A fork from inside an operation (a log sink that forks) can only go on as it is.
thread_local constinit bool fork_from_within CUKILN_TLS = false;

}  // namespace

struct ForkGate::Handlers {
  // Registered when the library is loaded: at the first use another thread might fork meanwhile.
  // ENOMEM: then a child finds its parent's handles, and leaves them.
  static const int kInstalled;

  static void before() {
    fork_from_within = passes > 0;
    if (fork_from_within) {
      return;
    }
    ::pthread_rwlock_wrlock(&gate);
    for (ForkGate::Guarded* one = first_guarded; one != nullptr; one = one->next_) {
      one->before_fork();
    }
  }
  static void after_in_parent() {
    if (!fork_from_within) {
      ::pthread_rwlock_unlock(&gate);
    }
  }
  static void after_in_child() {
    // Not an unlock: glibc knows a write lock by the number of its thread, and that has changed.
#if defined(__SANITIZE_THREAD__)
    AnnotateRWLockReleased(__FILE__, __LINE__, &gate, fork_from_within ? 0 : 1);
#endif
    gate = pthread_rwlock_t PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    if (fork_from_within) {  // the passes of other threads went with them; this thread's goes on
      ::pthread_rwlock_rdlock(&gate);
    }
  }
};

const int ForkGate::Handlers::kInstalled =
    ::pthread_atfork(Handlers::before, Handlers::after_in_parent, Handlers::after_in_child);

ForkGate::Pass::Pass() noexcept {
  if (passes++ == 0) {
    ::pthread_rwlock_rdlock(&gate);
  }
}

ForkGate::Pass::~Pass() {
  if (--passes == 0) {
    ::pthread_rwlock_unlock(&gate);
  }
}

ForkGate::Guarded::Guarded() {
  const ForkSafeLock hold(list_mutex);
  next_ = first_guarded;
  if (next_ != nullptr) {
    next_->previous_ = this;
  }
  first_guarded = this;
}

ForkGate::Guarded::~Guarded() {
  const ForkSafeLock hold(list_mutex);
  (previous_ != nullptr ? previous_->next_ : first_guarded) = next_;
  if (next_ != nullptr) {
    next_->previous_ = previous_;
  }
}

}  // namespace cukiln
