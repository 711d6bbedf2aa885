// SPDX-License-Identifier: Apache-2.0
#include "compile/worker_pool.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cukiln {

namespace {

// NVRTC frees nearly all memory after a compile. The rest must not accumulate over days.
constexpr std::uint32_t kMaxCompiles = 64;

}  // namespace

std::unique_ptr<WorkerProcess> WorkerPool::take(std::string_view lock_folder) {
  std::vector<std::unique_ptr<WorkerProcess>> ended;  // destroyed after the lock is released
  const MutexLock lock(mutex_);
  for (;;) {
    const auto last = std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& worker) {
      return worker->lock_folder() == lock_folder;
    });
    if (last == idle_.rend()) {
      return nullptr;
    }
    std::unique_ptr<WorkerProcess> worker = std::move(*last);
    idle_.erase(std::next(last).base());
    if (worker->alive()) {
      return worker;
    }
    ended.push_back(std::move(worker));
  }
}

void WorkerPool::put_back(std::unique_ptr<WorkerProcess> worker, std::size_t max_idle) {
  if (worker == nullptr || !worker->reusable() || worker->compiles() >= kMaxCompiles) {
    return;
  }
  std::unique_ptr<WorkerProcess> oldest;  // destroyed after the lock is released
  const MutexLock lock(mutex_);
  if (idle_.size() >= max_idle && !idle_.empty()) {
    oldest = std::move(idle_.front());
    idle_.erase(idle_.begin());
  }
  if (idle_.size() < max_idle) {
    idle_.push_back(std::move(worker));
  }
}

}  // namespace cukiln
