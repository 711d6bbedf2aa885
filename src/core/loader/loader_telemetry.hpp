// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>

#include "core/base/telemetry.hpp"
#include "core/loader/not_stored.hpp"
#include "core/loader/stats_fields.hpp"
#include "core/store/cubin_store.hpp"

#include <cukiln/stats.hpp>

namespace cukiln {

/// The counters of a loader: the host's `Stats`, and histograms for the operator. Both are added to
/// the store's counters under fixed names, which metrics and `cukiln stats` read; the histograms go
/// through cukilnd if it is connected. Threads: safe; see Counters.
class LoaderTelemetry {
 public:
  void count(std::uint64_t Stats::*field, std::uint64_t n = 1) noexcept {
    std::atomic_ref(stats_.*field).fetch_add(n, std::memory_order_relaxed);
    std::atomic_ref(unreported_.*field).fetch_add(n, std::memory_order_relaxed);
  }
  /// Records the duration of a lookup that hit in `tier`.
  void hit(Tier tier, std::chrono::nanoseconds took) noexcept {
    lookups_[static_cast<std::size_t>(tier)].add(took);
  }
  void preloaded(std::chrono::nanoseconds took) noexcept { preloads_.add(took); }
  void not_stored(NotStored reason) noexcept { not_stored_.add(reason); }

  /// The members that a loader counts; `misses` is their sum.
  Stats stats() const noexcept {
    Stats s;
    for (const StatsField& field : kStatsFields) {
      if (field.by == CountedBy::loader || field.by == CountedBy::loader_alone) {
        s.*field.member = std::atomic_ref(stats_.*field.member).load(std::memory_order_relaxed);
      }
    }
    each_reason([&](const StatsField& reason) { s.misses += s.*reason.member; });
    return s;
  }

  /// Calls `take(name, value)` for each counter of the store to which `stats()` adds, with what was
  /// counted since the last call.
  template <class Take>
  void take_totals(const Take& take) {
    std::uint64_t misses = 0;
    const auto take_some = [&](const char* name, std::uint64_t value) {
      if (value != 0) {
        take(name, value);
      }
    };
    for (const StatsField& field : kStatsFields) {
      if (field.by == CountedBy::loader) {
        const std::uint64_t value = std::atomic_ref(unreported_.*field.member).exchange(0);
        misses += field.reason != nullptr ? value : 0;
        take_some(field.name, value);
      }
    }
    take_some(kMisses, misses);
  }

  /// Calls `take(name, value)` for each histogram counter and reason that is not zero, and resets
  /// it.
  template <class Take>
  void flush(const Take& take) {
    const auto visit = flush_into(take);
    for (std::size_t i = 0; i < lookups_.size(); ++i) {
      lookups_[i].each(lookup_name(i), visit);
    }
    preloads_.each(kPreload, visit);
    not_stored_.each(kNotStoredPrefix, kNotStored, visit);
  }

  /// Every name that `flush` and `take_totals` may use.
  static std::set<std::string, std::less<>> names() {
    std::set<std::string, std::less<>> all;
    const auto add = [&](const auto& names) { all.insert(names.begin(), names.end()); };
    for (std::size_t i = 0; i < kTierNames.size(); ++i) {
      add(ShortTimes::names(lookup_name(i)));
    }
    add(LongTimes::names(kPreload));
    for (const char* reason : kNotStored) {
      all.insert(kNotStoredPrefix + std::string(reason));
    }
    all.insert(kMisses);
    for (const StatsField& field : kStatsFields) {
      if (field.by == CountedBy::loader) {
        all.insert(field.name);
      }
    }
    return all;
  }

 private:
  static constexpr const char* kPreload = "preload";
  static constexpr const char* kMisses = "misses";  // the sum of the reasons
  static constexpr const char* kNotStoredPrefix = "not_stored_";
  /// `look_up_disk`: the name of stored counters, which never changes.
  static std::string lookup_name(std::size_t tier) {
    return std::string("look_up_") + kTierNames[tier];
  }

  mutable Stats stats_;  // mutable because std::atomic_ref takes no const before C++26
  Stats unreported_;     // of stats_, what no take_totals has taken
  std::array<ShortTimes, kTierNames.size()> lookups_;  // hits, by tier
  LongTimes preloads_;
  Counters<NotStored, std::size(kNotStored)> not_stored_;
};

}  // namespace cukiln
