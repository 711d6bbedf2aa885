// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cukiln {

/// Upper bounds of a Histogram's buckets, in microseconds, for fast operations and for compiles.
inline constexpr std::array<std::uint32_t, 14> kShortTimesUs = {
    10, 25, 50, 100, 250, 500, 1'000, 2'500, 5'000, 10'000, 25'000, 100'000, 500'000, 2'500'000};
inline constexpr std::array<std::uint32_t, 14> kLongTimesUs = {
    5'000,     10'000,    25'000,    50'000,     100'000,    250'000,    500'000,
    1'000'000, 2'500'000, 5'000'000, 10'000'000, 30'000'000, 60'000'000, 120'000'000};

/// A latency histogram, as Prometheus defines it, whose numbers are also available as named
/// counters. Threads: safe; relaxed atomics, so each number is right but several are not a
/// snapshot.
template <const auto& kBoundsUs>
class Histogram {
 public:
  static constexpr const auto& kBounds = kBoundsUs;

  void add(std::chrono::nanoseconds took) noexcept {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
    const auto value = static_cast<std::uint64_t>(us > 0 ? us : 0);
    std::size_t bucket = 0;
    while (bucket < kBoundsUs.size() && value > kBoundsUs[bucket]) {
      ++bucket;
    }
    buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_us_.fetch_add(value, std::memory_order_relaxed);
  }

  /// The counts by bucket, not cumulative, and the sum of all durations.
  struct Snapshot {
    std::array<std::uint64_t, kBoundsUs.size() + 1> buckets{};
    std::uint64_t sum_us = 0;
  };
  Snapshot snapshot() const noexcept {
    Snapshot now;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      now.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    }
    now.sum_us = sum_us_.load(std::memory_order_relaxed);
    return now;
  }

  /// Calls `visit(name, counter)`, with a reference to the atomic, for each counter that is not
  /// zero: `NAME_us_to_250` counts durations up to 250 µs that exceed the bound before,
  /// `NAME_us_beyond` those that exceed all bounds, and `NAME_us_sum` is the sum of all durations.
  template <class Visit>
  void each(std::string_view name, const Visit& visit) {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i].load(std::memory_order_relaxed) != 0) {
        visit(bucket_name(name, i), buckets_[i]);
      }
    }
    if (sum_us_.load(std::memory_order_relaxed) != 0) {
      visit(sum_name(name), sum_us_);
    }
  }

  /// Count and median of such counters, which `number(name)` returns. The median is the bound of
  /// its bucket: the last bound if it exceeds all of them, 0 if there is no duration.
  struct Summary {
    std::uint64_t count = 0, median_us = 0;
  };
  template <class Number>
  static Summary summary(std::string_view name, const Number& number) {
    std::array<std::uint64_t, kBoundsUs.size() + 1> up_to{};
    Summary all;
    for (std::size_t i = 0; i < up_to.size(); ++i) {
      all.count += number(bucket_name(name, i));
      up_to[i] = all.count;
    }
    for (std::size_t i = 0; all.count != 0 && i < kBoundsUs.size() && all.median_us == 0; ++i) {
      all.median_us = 2 * up_to[i] >= all.count ? kBoundsUs[i] : 0;
    }
    if (all.count != 0 && all.median_us == 0) {
      all.median_us = kBoundsUs.back();
    }
    return all;
  }

  /// The names of all counters, in the order of `each`.
  static std::vector<std::string> names(std::string_view name) {
    std::vector<std::string> all;
    for (std::size_t i = 0; i <= kBoundsUs.size(); ++i) {
      all.push_back(bucket_name(name, i));
    }
    all.push_back(sum_name(name));
    return all;
  }

 private:
  static std::string bucket_name(std::string_view name, std::size_t bucket) {
    return std::string(name) + (bucket < kBoundsUs.size()
                                    ? "_us_to_" + std::to_string(kBoundsUs[bucket])
                                    : std::string("_us_beyond"));
  }
  static std::string sum_name(std::string_view name) { return std::string(name) + "_us_sum"; }

  std::array<std::atomic<std::uint64_t>, kBoundsUs.size() + 1> buckets_{};
  std::atomic<std::uint64_t> sum_us_{0};
};

/// For lookups, replies and locks.
using ShortTimes = Histogram<kShortTimesUs>;
/// For compiles and starts.
using LongTimes = Histogram<kLongTimesUs>;

}  // namespace cukiln
