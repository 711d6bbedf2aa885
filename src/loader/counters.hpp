// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "loader/meters.hpp"

#include <cukiln/stats.hpp>

namespace cukiln {

/// What a loader counts, and under which name the store adds it up; no name: the store counts that
/// itself, or it says nothing beyond this process. `misses` is a sum, made when it is asked for.
struct Counted {
  std::uint64_t Stats::*field;
  const char* total;
};
inline constexpr Counted kCounted[] = {
    {&Stats::hits, "hits"},
    {&Stats::misses_new, "misses_new"},
    {&Stats::misses_header_changed, "misses_header_changed"},
    {&Stats::misses_header_appeared, "misses_header_appeared"},
    {&Stats::misses_header_vanished, "misses_header_vanished"},
    {&Stats::misses_damaged, "misses_damaged"},
    {&Stats::misses_revoked, "misses_revoked"},
    {&Stats::misses_evicted, "misses_evicted"},
    {&Stats::compiles, "compiles"},
    {&Stats::failed, "failed"},
    {&Stats::stored, nullptr},
    {&Stats::not_stored, "not_stored"},
    {&Stats::singleflight_waits, "singleflight_waits"},
    {&Stats::saved_us, "saved_us"},
    {&Stats::store_errors, "store_errors"},
    {&Stats::sealed_violations, nullptr},
};

/// Relaxed: each number is right, a set of them is not a snapshot. Threads: safe.
class Counters {
 public:
  void add(std::uint64_t Stats::*field, std::uint64_t n = 1) noexcept {
    std::atomic_ref(now_.*field).fetch_add(n, std::memory_order_relaxed);
  }

  Stats snapshot() const noexcept {
    Stats s;
    for (const Counted& counted : kCounted) {
      s.*counted.field = std::atomic_ref(now_.*counted.field).load(std::memory_order_relaxed);
    }
    s.misses = s.misses_new + s.misses_header_changed + s.misses_header_appeared +
               s.misses_header_vanished + s.misses_damaged + s.misses_revoked + s.misses_evicted;
    return s;
  }

  Meters meters;

 private:
  mutable Stats now_;  // an atomic_ref to a const is not to be had before C++26
};

}  // namespace cukiln
