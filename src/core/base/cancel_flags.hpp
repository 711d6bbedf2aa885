// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace cukiln {

/// Ends a wait or a compile early: set as soon as one of its flags is. Copied freely; owns nothing.
/// Polled, not waited for: a forked child must find nothing locked.
class CancelFlags {
 public:
  /// Never set.
  constexpr CancelFlags() noexcept = default;
  CancelFlags(const std::atomic<bool>& flag) noexcept : first_(&flag) {}
  CancelFlags(const std::atomic<bool>&&) = delete;
  /// `second` may be null.
  CancelFlags(const std::atomic<bool>& first, const std::atomic<bool>* second) noexcept
      : first_(&first), second_(second) {}

  bool is_set() const noexcept { return is_set(first_) || is_set(second_); }
  bool can_be_set() const noexcept { return first_ != nullptr || second_ != nullptr; }

 private:
  static bool is_set(const std::atomic<bool>* flag) noexcept {
    return flag != nullptr && flag->load(std::memory_order_relaxed);
  }

  const std::atomic<bool>* first_ = nullptr;
  const std::atomic<bool>* second_ = nullptr;
};

}  // namespace cukiln
