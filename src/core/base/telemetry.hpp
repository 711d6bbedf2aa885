// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/histogram.hpp"

namespace cukiln {

// The numbers that a process counts for its operator are Counters and Histograms (histogram.hpp).
// Both have `each(name, visit)`, which calls `visit(name of a counter, its atomic)`: `flush_into`
// makes such a visitor.

/// A counter for each enumerator of `Id`; the enumerators are 0, 1, … kCount - 1. Threads: safe;
/// relaxed atomics, so each number is right but several are not a snapshot.
template <class Id, std::size_t kCount>
class Counters {
 public:
  using Values = std::array<std::uint64_t, kCount>;

  void add(Id id, std::uint64_t n = 1) noexcept {
    assert(static_cast<std::size_t>(id) < kCount);
    counters_[static_cast<std::size_t>(id)].fetch_add(n, std::memory_order_relaxed);
  }
  std::uint64_t operator[](Id id) const noexcept {
    assert(static_cast<std::size_t>(id) < kCount);
    return counters_[static_cast<std::size_t>(id)].load(std::memory_order_relaxed);
  }
  Values values() const noexcept {
    Values now{};
    for (std::size_t i = 0; i < kCount; ++i) {
      now[i] = counters_[i].load(std::memory_order_relaxed);
    }
    return now;
  }

  /// Calls `visit(prefix + names[i], counter)`, with a reference to the atomic, for each counter
  /// that is not zero.
  template <class Visit>
  void each(std::string_view prefix, const char* const (&names)[kCount], const Visit& visit) {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (counters_[i].load(std::memory_order_relaxed) != 0) {
        visit(std::string(prefix) + names[i], counters_[i]);
      }
    }
  }

 private:
  std::array<std::atomic<std::uint64_t>, kCount> counters_{};
};

/// Returns a visitor that resets each counter and calls `take(name, value)` with the value that it
/// had, so that every count is taken exactly once. `take` must outlive the visitor.
template <class Take>
auto flush_into(const Take& take) {
  return [&take](std::string name, std::atomic<std::uint64_t>& counter) {
    if (const std::uint64_t value = counter.exchange(0, std::memory_order_relaxed); value != 0) {
      take(std::move(name), value);
    }
  };
}

}  // namespace cukiln
