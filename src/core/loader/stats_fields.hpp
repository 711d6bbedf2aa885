// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/stats.hpp>

namespace cukiln {

/// Who counts a member of Stats.
enum class CountedBy {
  loader,        ///< and it adds its number to the store's counter of the same name
  loader_alone,  ///< and adds it to no counter of the store, which counts it itself or not at all
  sum,           ///< of the reasons of misses; as `loader`
  other,         ///< the store, or the connection to cukilnd
};

enum class Unit { count, bytes, us };

/// A member of Stats, and how it is counted and shown.
struct StatsField {
  const char* name;
  std::uint64_t Stats::*member;
  CountedBy by;
  const char* reason;  ///< of the misses that it counts; null: it counts something else
  const char* json;    ///< its name in `cukiln stats --json`, where it is not a reason's
  const char* label;   ///< in `cukiln stats`; null: not shown
  Unit unit;
  const char* note;
};

inline constexpr StatsField kStatsFields[] = {
    // schema: stats. Written by src/schema/generate.py
    // clang-format off
    {"entries", &Stats::entries, CountedBy::other, nullptr, "entries", "entries", Unit::count, ""},
    {"store_bytes", &Stats::store_bytes, CountedBy::other, nullptr, "bytes", "files", Unit::bytes, ""},
    {"hits", &Stats::hits, CountedBy::loader, nullptr, "hits", "hits", Unit::count, ""},
    {"misses", &Stats::misses, CountedBy::sum, nullptr, "misses", "misses", Unit::count, ""},
    {"misses_new", &Stats::misses_new, CountedBy::loader, "new", nullptr, "new", Unit::count, "nothing for the source, flags or target"},
    {"misses_header_changed", &Stats::misses_header_changed, CountedBy::loader, "header_changed", nullptr, "header changed", Unit::count, ""},
    {"misses_header_appeared", &Stats::misses_header_appeared, CountedBy::loader, "header_appeared", nullptr, "header appeared", Unit::count, ""},
    {"misses_header_vanished", &Stats::misses_header_vanished, CountedBy::loader, "header_vanished", nullptr, "header vanished", Unit::count, ""},
    {"misses_damaged", &Stats::misses_damaged, CountedBy::loader, "damaged", nullptr, "damaged", Unit::count, ""},
    {"compiles", &Stats::compiles, CountedBy::loader, nullptr, "compiles", "compiles", Unit::count, ""},
    {"failed", &Stats::failed, CountedBy::loader, nullptr, "failed", "failed compiles", Unit::count, ""},
    {"stored", &Stats::stored, CountedBy::loader_alone, nullptr, "stored", "stored", Unit::count, ""},
    {"not_stored", &Stats::not_stored, CountedBy::loader, nullptr, "not_stored", "not stored", Unit::count, "compiled and used, but not stored"},
    {"evicted", &Stats::evicted, CountedBy::other, nullptr, "evicted", "evicted", Unit::count, "least recently used"},
    {"corrupt", &Stats::corrupt, CountedBy::other, nullptr, "corrupt", "damage found", Unit::count, "and removed"},
    {"singleflight_waits", &Stats::singleflight_waits, CountedBy::loader, nullptr, "singleflight_waits", "waits", Unit::count, "for a concurrent compile of the same request"},
    {"saved_us", &Stats::saved_us, CountedBy::loader, nullptr, "saved_ms", "time saved", Unit::us, "compiles that hits saved"},
    {"store_errors", &Stats::store_errors, CountedBy::loader, nullptr, "store_errors", "store errors", Unit::count, "tolerated"},
    {"sealed_violations", &Stats::sealed_violations, CountedBy::loader_alone, nullptr, nullptr, nullptr, Unit::count, ""},
    {"daemon_asked", &Stats::daemon_asked, CountedBy::other, nullptr, nullptr, nullptr, Unit::count, ""},
    {"daemon_absent", &Stats::daemon_absent, CountedBy::other, nullptr, nullptr, nullptr, Unit::count, ""},
    {"daemon_failed", &Stats::daemon_failed, CountedBy::other, nullptr, nullptr, nullptr, Unit::count, ""},
    {"daemon_declined", &Stats::daemon_declined, CountedBy::other, nullptr, nullptr, nullptr, Unit::count, ""},
    {"misses_revoked", &Stats::misses_revoked, CountedBy::loader, "revoked", nullptr, "revoked", Unit::count, "signed by a key that was revoked"},
    {"misses_evicted", &Stats::misses_evicted, CountedBy::loader, "evicted", nullptr, "evicted", Unit::count, ""},
    // clang-format on
    // end of schema
};

/// Calls `take(field)` for each reason of a miss.
template <class Take>
void each_reason(const Take& take) {
  for (const StatsField& field : kStatsFields) {
    if (field.reason != nullptr) {
      take(field);
    }
  }
}

}  // namespace cukiln
