// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/base/fork_gate.hpp"
#include "core/base/logger.hpp"
#include "core/base/mutex.hpp"

namespace cukiln {

/// Logs flags that have no effect, each once. Threads: safe.
class FlagNotices {
 public:
  void log_new(const std::vector<std::string>& flags, const Logger& log) {
    for (const std::string& flag : flags) {
      if (is_new(flag)) {
        log.warn("{} is ignored: it does not change the cubin, or cukiln does its job", flag);
      }
    }
  }

 private:
  bool is_new(const std::string& flag) {
    const ForkSafeLock lock(mutex_);
    return logged_.insert(flag).second;
  }

  Mutex mutex_;
  std::set<std::string> logged_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln
