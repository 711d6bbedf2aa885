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

/// Upper bounds of a Histogram's buckets, in microseconds: of what should take no time, and of
/// compiles.
inline constexpr std::array<std::uint32_t, 14> kShortTimesUs = {
    10, 25, 50, 100, 250, 500, 1'000, 2'500, 5'000, 10'000, 25'000, 100'000, 500'000, 2'500'000};
inline constexpr std::array<std::uint32_t, 14> kLongTimesUs = {
    5'000,     10'000,    25'000,    50'000,     100'000,    250'000,    500'000,
    1'000'000, 2'500'000, 5'000'000, 10'000'000, 30'000'000, 60'000'000, 120'000'000};

/// How long something took, many times: what a Prometheus histogram is made of, and its numbers
/// as counters that have names. Threads: safe; relaxed, so each number is right and a set of them
/// is no snapshot.
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

  /// `visit(name, number)`, an atomic, for each that is not zero: `NAME_us_to_250` has counted what
  /// took up to 250 µs and longer than the bound before, `NAME_us_beyond` what took longer than all
  /// of them, `NAME_us_sum` is the time of all together.
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

  /// From such numbers, by their names: how many there are, and the bound that half of them did not
  /// exceed (of those beyond all bounds, the last one; 0 where there is none).
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

  /// All names, in the order of `each`.
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

/// Of what should take no time: look-ups, answers, locks; and of compiles and starts.
using ShortTimes = Histogram<kShortTimesUs>;
using LongTimes = Histogram<kLongTimesUs>;

}  // namespace cukiln
