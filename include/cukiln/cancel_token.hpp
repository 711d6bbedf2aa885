// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

namespace cukiln {
inline namespace v0 {

/// A handle that cancels the calls it was passed to, before or while they run. Copies are the same
/// token. A cancelled token stays cancelled. Threads: every member may be called concurrently.
class CancelToken {
 public:
  CancelToken() : cancelled_(std::make_shared<std::atomic<bool>>(false)) {}

  /// Makes the calls return `timeout`. A compile in progress ends within about 20 ms. A call that
  /// waits for another thread's compile of the same module returns when that compile ends.
  void cancel() const noexcept { cancelled_->store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_->load(std::memory_order_relaxed); }

  /// The flag that the loader polls. Valid while a copy of the token exists.
  const std::atomic<bool>& flag() const noexcept { return *cancelled_; }

 private:
  std::shared_ptr<std::atomic<bool>> cancelled_;
};

}  // namespace v0
}  // namespace cukiln
