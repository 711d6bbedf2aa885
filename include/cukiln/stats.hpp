// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {
inline namespace v0 {

/// The counters of a loader since its creation, or those of a store since it was created.
struct Stats {
  // schema: Stats. Written by src/schema/generate.py
  std::uint64_t entries = 0;      ///< in the store now
  std::uint64_t store_bytes = 0;  ///< of the store's files now
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;                 ///< the sum of all misses_…
  std::uint64_t misses_new = 0;             ///< the store had nothing for the request
  std::uint64_t misses_header_changed = 0;  ///< or its file identity
  std::uint64_t misses_header_appeared = 0;
  std::uint64_t misses_header_vanished = 0;
  std::uint64_t misses_damaged = 0;  ///< the entry failed its check
  std::uint64_t compiles = 0;        ///< compiles that succeeded
  std::uint64_t failed = 0;          ///< compiles that failed
  std::uint64_t stored = 0;
  std::uint64_t not_stored = 0;  ///< results that were used but not stored, for any reason
  std::uint64_t evicted = 0;
  std::uint64_t corrupt = 0;             ///< damaged entries that were found and removed
  std::uint64_t singleflight_waits = 0;  ///< requests that waited for a compile of another caller
  std::uint64_t saved_us = 0;            ///< compile time that hits saved
  std::uint64_t store_errors = 0;        ///< failed store operations, which are not fatal
  std::uint64_t sealed_violations = 0;   ///< compiles or loads after sealing with a warning
  std::uint64_t daemon_asked = 0;        ///< requests to cukilnd
  std::uint64_t daemon_absent = 0;       ///< of these: no daemon was running
  std::uint64_t daemon_failed = 0;       ///< it hung, died, or was of another version or user
  std::uint64_t daemon_declined = 0;     ///< it was busy or shutting down: compiled in this process
  std::uint64_t misses_revoked = 0;      ///< the entry was signed by a revoked key
  std::uint64_t misses_evicted = 0;      ///< the entry was recorded, and evicted or removed since
  // end of schema
};

}  // namespace v0
}  // namespace cukiln
