// SPDX-License-Identifier: Apache-2.0
#include "core/compile/worker_pool.hpp"

#include <utility>

namespace cukiln {

namespace {

// NVRTC frees nearly all memory after a compile. The rest must not accumulate over days.
constexpr std::uint32_t kMaxCompiles = 64;

}  // namespace

std::unique_ptr<WorkerProcess> WorkerPool::take() {
  std::vector<std::unique_ptr<WorkerProcess>> ended;  // destroyed after the lock is released
  const MutexLock lock(mutex_);
  while (!idle_.empty()) {
    std::unique_ptr<WorkerProcess> worker = std::move(idle_.back());
    idle_.pop_back();
    if (worker->alive()) {
      return worker;
    }
    ended.push_back(std::move(worker));
  }
  return nullptr;
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
