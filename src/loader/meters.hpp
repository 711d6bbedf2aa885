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
#include <utility>
#include <vector>

#include "base/histogram.hpp"
#include "store/cubin_store.hpp"

namespace cukiln {

/// Why a result was used and not kept.
enum class NotStored { time, unobserved, too_large, no_disk, error };
inline constexpr const char* kNotStored[] = {"time", "unobserved", "too_large", "no_disk", "error"};

/// What a process measures for an operator to see: not asked for by the host, told to cukilnd or
/// added to the store's counters, under these names, and zero again. Threads: safe.
struct Meters {
  std::array<ShortTimes, kTierNames.size()> look_ups;  ///< hits, by where they were found
  LongTimes preloads;
  std::array<std::atomic<std::uint64_t>, std::size(kNotStored)> not_stored{};

  void hit(Tier where, std::chrono::nanoseconds took) noexcept {
    look_ups[static_cast<std::size_t>(where)].add(took);
  }
  void count(NotStored reason) noexcept {
    not_stored[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }

  /// `take(name, number)` for each that is not zero, and makes it zero.
  template <class Take>
  void drain(const Take& take) {
    const auto visit = [&](std::string name, std::atomic<std::uint64_t>& number) {
      if (const std::uint64_t value = number.exchange(0, std::memory_order_relaxed); value != 0) {
        take(std::move(name), value);
      }
    };
    for (std::size_t i = 0; i < kTierNames.size(); ++i) {
      look_ups[i].each(look_up_name(i), visit);
    }
    preloads.each("preload", visit);
    for (std::size_t i = 0; i < not_stored.size(); ++i) {
      visit(std::string("not_stored_") + kNotStored[i], not_stored[i]);
    }
  }

  /// Every name that `drain` knows.
  static std::set<std::string, std::less<>> names() {
    std::set<std::string, std::less<>> all;
    for (std::size_t i = 0; i < kTierNames.size(); ++i) {
      all.merge(set_of(ShortTimes::names(look_up_name(i))));
    }
    all.merge(set_of(LongTimes::names("preload")));
    for (const char* reason : kNotStored) {
      all.insert(std::string("not_stored_") + reason);
    }
    return all;
  }

 private:
  static std::string look_up_name(std::size_t tier) {
    return std::string("look_up_") + kTierNames[tier];
  }
  static std::set<std::string, std::less<>> set_of(const std::vector<std::string>& names) {
    return {names.begin(), names.end()};
  }
};

}  // namespace cukiln
