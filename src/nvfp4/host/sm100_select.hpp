// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "nvfp4/host/ceil_div.hpp"
#include "nvfp4/host/sm100_plan.hpp"

namespace cukiln::nvfp4 {

/// Clocks that a tactic takes beyond what all take: waves of tiles, of as many stages of K, each as
/// long as its MMAs or its bytes take. It orders the tactics of a shape and predicts no time: no
/// constant was measured on sm_100a. sm100.md says where each is from.
constexpr double sm100_cost(const GemmTactic& tactic, const Sm100Shape& shape) noexcept {
  using kernels::ceil_div;
  constexpr double kRowBytes = kSm100StageK * 9.0 / 16;  // data and scales of a row in a stage
  constexpr double kL2 = 7000;       // bytes a clock, out of L2 into all SMs together
  constexpr double kMemory = 3920;   // out of memory
  constexpr double kIngress = 80;    // into one SM
  constexpr double kStage = 120;     // that a stage's loads take beyond their bytes
  constexpr double kIssue = 230;     // until a stage's loads are issued
  constexpr double kLatency = 1300;  // of the first stage's loads
  constexpr double kSetup =
      500;  // and end, of each CTA of a tile, beyond those with swapped operands
  constexpr double kStore = 850;         // of 64 columns
  constexpr double kSwappedColumn = 12;  // to store it, of however many rows
  constexpr double kSplit = 770;         // until a cluster's CTAs have met
  constexpr double kSums = 14;           // bytes a clock, from a CTA to those of its cluster
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const Sm100Kernel& kernel = kSm100Kernels[tactic.kernel];
  const std::int64_t rows = kernel.swapped ? shape.n : shape.m;
  const std::int64_t columns = kernel.swapped ? shape.m : shape.n;
  const std::int64_t row_tiles = ceil_div(rows, std::int64_t{kernel.rows} * kernel.ctas);
  const std::int64_t column_tiles = ceil_div(columns, std::int64_t{kernel.columns});
  const std::int64_t clusters = cluster_count(kernel, shape.m, shape.n);
  const std::int64_t in_wave = wave_clusters(kernel, tactic.splits, shape.num_sms);
  const double stages = real(ceil_div(ceil_div(shape.k, kSm100StageK), tactic.splits));
  const double busy_clusters = real(std::min(clusters, in_wave));

  // Bytes of a mean tile, without rows beyond a matrix. A CTA asks L2 for a part of shared rows.
  const double row_bytes = kRowBytes * real(rows) / real(row_tiles * kernel.ctas);
  const double column_bytes = kRowBytes * real(columns) / real(column_tiles * kernel.ctas);
  const double asked = row_bytes / kernel.rows_shared + column_bytes / kernel.columns_shared;
  const double l2 = asked * busy_clusters * kernel.cluster() * tactic.splits / kL2;
  // Each byte comes from memory once, of an expert only if it has a row.
  const std::int64_t weights = std::min(shape.experts, row_tiles) * shape.n;
  const double memory = kRowBytes * real(shape.m + weights) * tactic.splits * busy_clusters /
                        real(clusters) / kMemory;
  const double load = kStage + std::max({l2, memory, (row_bytes + column_bytes) / kIngress});

  // The tensor core multiplies 16384 elements a clock, and reads 128 bytes of both operands.
  const double mma = std::max(2.0 * kernel.columns, 128.0 + real(kernel.columns / kernel.ctas));
  const double pace = std::max(mma, kIssue);
  const double first = std::max(kLatency + (stages - 1) * pace, stages * load);
  const double store = kernel.swapped ? kSwappedColumn * kernel.columns
                                      : kStore * real(ceil_div(kernel.columns, 64u));
  const double sums = 4.0 * kernel.rows * real(std::min<std::int64_t>(columns, kernel.columns));
  double end = tactic.splits == 1 ? store : kSplit + sums * (1 - 1.0 / tactic.splits) / kSums;
  if (kernel.columns == 256 && kernel.columns_shared > 1) {
    end -= 2 * mma;  // in halves: the first is stored while four stages of the second multiply
  }
  // Behind the first tile the store of one is hidden behind the MMAs of the next.
  const double waves = real(ceil_div(clusters, in_wave));
  return first + mma + (waves - 1) * std::max(stages * std::max(load, pace), store) + end +
         (kernel.swapped ? 0 : kSetup * kernel.ctas);
}

/// Selects the tactic of the kernels in [first, end) with the least cost, of equal ones the first.
constexpr GemmTactic cheapest_sm100(std::size_t first, std::size_t end,
                                    const Sm100Shape& shape) noexcept {
  GemmTactic cheapest{static_cast<std::uint32_t>(first), 1};
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t kernel = first; kernel < end; ++kernel) {
    for (const std::uint32_t splits : kSm100Splits) {
      const GemmTactic tactic{static_cast<std::uint32_t>(kernel), splits};
      const double cost = sm100_cost(tactic, shape);
      if (applies(tactic, shape) && cost < least) {
        least = cost;
        cheapest = tactic;
      }
    }
  }
  return cheapest;
}

/// Selects the tactic of a GEMM that is not grouped.
constexpr GemmTactic select_sm100(const Sm100Shape& shape) noexcept {
  return cheapest_sm100(0, kSm100PlainCount, shape);
}

/// Selects the kernel of a grouped GEMM.
inline const Sm100Kernel& select_sm100_grouped(const Sm100Shape& shape) noexcept {
  return kSm100Kernels[cheapest_sm100(kSm100Grouped, std::size(kSm100Kernels), shape).kernel];
}

}  // namespace cukiln::nvfp4
