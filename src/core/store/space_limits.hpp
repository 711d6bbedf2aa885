// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace cukiln {

/// The cap of a store's live data, which may change while the store is open, and the size of the
/// reserve, at most an eighth of the cap. Threads: safe.
class SpaceLimits {
 public:
  SpaceLimits(std::uint64_t max_bytes, std::uint64_t reserve_bytes)
      : max_bytes_(max_bytes), reserve_bytes_(reserve_bytes) {}

  std::uint64_t max_bytes() const noexcept { return max_bytes_.load(std::memory_order_relaxed); }
  void set_max_bytes(std::uint64_t bytes) noexcept {
    max_bytes_.store(bytes, std::memory_order_relaxed);
  }
  std::uint64_t reserve_bytes() const noexcept { return std::min(reserve_bytes_, max_bytes() / 8); }

 private:
  std::atomic<std::uint64_t> max_bytes_;
  const std::uint64_t reserve_bytes_;
};

}  // namespace cukiln
