// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>

#include "core/base/mutex.hpp"
#include "core/base/process_local.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// The requests that threads of this process are compiling. A forked child starts with none,
/// because the threads belong to its parent. Threads: safe.
class InFlight {
  struct Set {
    Mutex mutex;
    ConditionVariable ended;
    std::set<RequestDigest> requests CUKILN_GUARDED_BY(mutex);
  };

 public:
  /// Marks a request as in flight from construction, which waits until no other record has the same
  /// request, to destruction.
  class Record {
   public:
    Record(InFlight& all, const RequestDigest& request) : all_(all), request_(request) {
      Set& set = all_.set_.get();
      MutexLock lock(set.mutex);
      while (!set.requests.insert(request_).second) {
        waited_ = true;
        set.ended.wait(lock);
      }
    }
    ~Record() {
      Set* const set = all_.set_.existing();
      if (set == nullptr) {
        return;  // a callback forked, and this is the child
      }
      {
        const MutexLock lock(set->mutex);
        set->requests.erase(request_);
      }
      set->ended.notify_all();
    }
    Record(const Record&) = delete;
    Record& operator=(const Record&) = delete;
    /// True if another thread compiled the request in the meantime.
    bool waited() const noexcept { return waited_; }

   private:
    InFlight& all_;
    const RequestDigest request_;
    bool waited_ = false;
  };

 private:
  ProcessLocal<Set> set_;
};

}  // namespace cukiln
