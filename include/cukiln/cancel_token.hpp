// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

namespace cukiln {
inline namespace v0 {

/// Cancels the calls that it was given to, before or while they run. Copies are the same token; it
/// stays cancelled. Threads: every member may be called from any thread at once.
class CancelToken {
 public:
  CancelToken() : cancelled_(std::make_shared<std::atomic<bool>>(false)) {}

  /// A compile in progress ends within 20 ms or so; the call returns `timeout`. A call that waits
  /// for another thread's compile of the same module ends with that compile.
  void cancel() const noexcept { cancelled_->store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_->load(std::memory_order_relaxed); }

  /// What the loader polls. Valid as long as a copy of the token.
  const std::atomic<bool>& flag() const noexcept { return *cancelled_; }

 private:
  std::shared_ptr<std::atomic<bool>> cancelled_;
};

}  // namespace v0
}  // namespace cukiln
