// SPDX-License-Identifier: Apache-2.0
#include "core/base/fork_gate.hpp"

#include <pthread.h>

#include <cassert>

#include "core/base/mutex.hpp"

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateRWLockReleased(const char* file, int line, const volatile void* lock,
                                       long is_write);
#endif

namespace cukiln {

namespace {

// Initialised statically and never destroyed: a thread may be in a lookup, or fork, while the
// process exits. Prefers writers, so that a fork does not starve behind a stream of lookups.
pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
constinit Mutex list_mutex;  // taken under a Pass only, so a fork that holds the gate needs not
ForkGate::Guarded* first_guarded CUKILN_GUARDED_BY(list_mutex) = nullptr;

// initial-exec: allocated with the thread. Allocation at the first use could fail.
#define CUKILN_TLS __attribute__((tls_model("initial-exec")))
thread_local constinit int passes CUKILN_TLS = 0;
// Set if this thread forks while it holds a Pass (a log sink that forks): it cannot wait for
// itself.
thread_local constinit bool fork_from_within CUKILN_TLS = false;

}  // namespace

struct ForkGate::Handlers {
  // Registered when the library is loaded: at the first use, another thread might be forking. If it
  // fails (ENOMEM), a child recognises its parent's handles and leaves them alone.
  static const int kInstalled;

  /// Not analysed: the gate, held for writing, stands for `list_mutex`.
  static void before() CUKILN_NO_THREAD_SAFETY_ANALYSIS {
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
    // Reinitialised and not unlocked: glibc stores the thread id of the writer, which has changed.
#if defined(__SANITIZE_THREAD__)
    AnnotateRWLockReleased(__FILE__, __LINE__, &gate, fork_from_within ? 0 : 1);
#endif
    gate = pthread_rwlock_t PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    if (fork_from_within) {  // other threads do not exist here; this thread still holds its Pass
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
  assert(passes > 0);  // destroyed by the thread that constructed it
  if (--passes == 0) {
    ::pthread_rwlock_unlock(&gate);
  }
}

ForkGate::Guarded::Guarded() {
  assert(passes > 0);
  const ForkSafeLock lock(list_mutex);
  next_ = first_guarded;
  if (next_ != nullptr) {
    next_->previous_ = this;
  }
  first_guarded = this;
}

ForkGate::Guarded::~Guarded() {
  assert(passes > 0);
  const ForkSafeLock lock(list_mutex);
  (previous_ != nullptr ? previous_->next_ : first_guarded) = next_;
  if (next_ != nullptr) {
    next_->previous_ = previous_;
  }
}

}  // namespace cukiln
