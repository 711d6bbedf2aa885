// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/compile/worker_process.hpp"

namespace cukiln {

/// Idle workers, kept for the next compile because opening NVRTC costs as much as compiling a small
/// kernel. Each ends by itself after a few idle seconds. Threads: safe.
class WorkerPool {
 public:
  /// Returns an idle worker, or null.
  std::unique_ptr<WorkerProcess> take();
  /// Keeps a worker for a later `take`. Ends the oldest one if `max_idle` are kept, and this one if
  /// it has compiled often, because NVRTC leaks a little memory.
  void put_back(std::unique_ptr<WorkerProcess> worker, std::size_t max_idle);

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<WorkerProcess>> idle_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln
