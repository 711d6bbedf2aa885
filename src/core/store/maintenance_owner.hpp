// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "core/base/file_lock.hpp"
#include "core/store/store_directory.hpp"

namespace cukiln {

/// `keeper.lock` of a store, whose holder evicts and checkpoints for all processes. Threads: one
/// acquires it at a time.
class MaintenanceOwner {
 public:
  explicit MaintenanceOwner(const StoreDirectory& directory) : directory_(directory) {}

  /// True if this process has to do maintenance: it is the owner, or there is no owner.
  bool is_due_here() const {
    return lock_.held() || !FileLock::holder(directory_.path("keeper.lock"));
  }

  /// Becomes the owner, unless another process is it.
  void try_acquire() {
    if (lock_.held()) {
      return;
    }
    auto lock = FileLock::acquire(directory_.path("keeper.lock"), FileLock::Mode::exclusive,
                                  std::chrono::milliseconds(0));
    if (lock) {
      lock_ = *std::move(lock);
    }
  }

 private:
  const StoreDirectory& directory_;
  FileLock lock_;
};

}  // namespace cukiln
