// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {
inline namespace v0 {

/// Counters, since the loader (or, in the store's, since the store) was made.
struct Stats {
  std::uint64_t entries = 0;  ///< in the store now
  std::uint64_t bytes = 0;    ///< of the store's files now
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;  ///< the sum of the next five, of misses_revoked and of misses_evicted
  std::uint64_t misses_new = 0;             ///< nothing of the request is stored
  std::uint64_t misses_header_changed = 0;  ///< or linked otherwise
  std::uint64_t misses_header_appeared = 0;
  std::uint64_t misses_header_vanished = 0;
  std::uint64_t misses_damaged = 0;  ///< the entry was there and failed its check
  std::uint64_t compiles = 0;        ///< that succeeded
  std::uint64_t failed = 0;          ///< compiles that failed
  std::uint64_t stored = 0;
  std::uint64_t not_stored = 0;  ///< results used but not written, whatever the reason
  std::uint64_t evicted = 0;
  std::uint64_t corrupt = 0;             ///< damaged entries found and removed
  std::uint64_t singleflight_waits = 0;  ///< requests that waited for another's compile
  std::uint64_t saved_us = 0;            ///< compile time that hits saved
  std::uint64_t store_errors = 0;        ///< store operations that failed and were survived
  std::uint64_t sealed_violations = 0;   ///< compiles or loads after `seal(SealPolicy::warn)`
  std::uint64_t daemon_asked = 0;        ///< questions put to cukilnd
  std::uint64_t daemon_absent = 0;       ///< nobody was there
  std::uint64_t daemon_failed = 0;       ///< it hung, died, or was another version's or user's
  std::uint64_t daemon_declined = 0;     ///< it was busy or about to end: compiled here
  std::uint64_t misses_revoked = 0;      ///< the entry was there, signed by a revoked key
  std::uint64_t misses_evicted = 0;      ///< recorded beside others, and evicted or removed since
};

}  // namespace v0
}  // namespace cukiln
