#pragma once

#include <atomic>
#include <cstdint>

#include <cukiln/stats.hpp>

namespace cukiln {

/// What a loader counts. Relaxed: each number is right, a set of them is not a snapshot.
struct Counters {
  std::atomic<std::uint64_t> hits{0}, misses_new{0}, misses_header_changed{0},
      misses_header_appeared{0}, misses_header_vanished{0}, misses_damaged{0}, compiles{0},
      failed{0}, stored{0}, not_stored{0}, singleflight_waits{0}, saved_us{0}, store_errors{0},
      sealed_violations{0};

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
    counter.fetch_add(n, std::memory_order_relaxed);
  }

  Stats snapshot() const noexcept {
    Stats s;
    s.hits = hits;
    s.misses_new = misses_new;
    s.misses_header_changed = misses_header_changed;
    s.misses_header_appeared = misses_header_appeared;
    s.misses_header_vanished = misses_header_vanished;
    s.misses_damaged = misses_damaged;
    s.misses = s.misses_new + s.misses_header_changed + s.misses_header_appeared +
               s.misses_header_vanished + s.misses_damaged;
    s.compiles = compiles;
    s.failed = failed;
    s.stored = stored;
    s.not_stored = not_stored;
    s.singleflight_waits = singleflight_waits;
    s.saved_us = saved_us;
    s.store_errors = store_errors;
    s.sealed_violations = sealed_violations;
    return s;
  }
};

}  // namespace cukiln
