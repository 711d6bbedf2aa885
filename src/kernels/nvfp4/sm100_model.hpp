// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.hpp"

namespace cukiln::nvfp4 {

/// What the model below knows of a machine, but for its number of SMs. Clocks are those of an SM,
/// rates bytes for each of its clocks. Nothing was measured on sm_100a: tests/sm100/machines.py
/// says where each constant is from: measurements of others on a B200, a twin on an H100, or none.
struct Sm100Machine {
  double ghz = 1.85;
  double mma_rate = 16384;       // products of elements for each clock of an SM
  double shared = 128;           // that MMAs read of an SM's shared memory
  double memory = 3920;          // out of memory, and into it
  double l2 = 6840;              // out of L2, into all SMs together; what is multicast counts once
  double ingress = 120;          // into one SM, multicast by others too
  double multicast = 0;          // clocks beyond its own, for each byte that another SM asked for
  double in_flight = 131072;     // bytes that one SM's TMA has asked for and not got
  double l2_latency = 470;       // of a load, from its issue to its barrier
  double memory_latency = 1300;  // likewise
  double producer = 230;         // to issue the loads of a stage
  double stage = 25;             // that TMA takes for a stage beyond its bytes
  double wake = 40;              // from a barrier's completion to the waiting thread
  double issue = 70;  // from the first instruction that issues a stage's MMAs to half of them
  double mma_latency = 100;  // from an MMA's end to the arrival of its commit
  double chunk = 850;        // of the epilogue, for 64 columns
  double read = 300;         // until it has read them from tensor memory
  double setup = 970;        // until the first load is issued
  double drain = 1370;       // from the last store to the end
  double meet = 200;         // more of both, of pairs: they wait for each other
  // Swapped operands have a set-up, an epilogue and an end of their own.
  double swapped_setup = 660;
  double swapped_epilogue = 100;  // of a tile, and for each of its columns
  double swapped_column = 12;
  double swapped_drain = 1090;  // from the last instruction to the end
  double split = 870;           // of a cluster that adds up its parts of K, instead of an epilogue
  double dsmem = 14;            // bytes of sums, from a CTA to those of its cluster
  double launch_us = 0.56;      // of a launch that does nothing
};

/// As others measured a B200.
inline constexpr Sm100Machine kSm100AsPublished;

/// A machine that loads as an H100 does, where tests/bench/sm100_twin.py measured it.
inline constexpr Sm100Machine kSm100AsH100 = [] {
  Sm100Machine machine;
  machine.l2 = 7150;
  machine.ingress = 140;
  machine.multicast = 0.01;
  machine.in_flight = 119000;
  machine.stage = 200;
  return machine;
}();

/// A tile, as the model needs it.
struct Sm100TileModel {
  std::uint32_t rows;  // of all its CTAs
  std::uint32_t columns;
  std::uint32_t ctas;
  bool swapped;                  // its rows are B's
  std::uint32_t rows_shared;     // tiles side by side, of a cluster that shares the loads of rows
  std::uint32_t columns_shared;  // tiles one above the other, likewise
  std::uint32_t stages;          // that a CTA has room for
  std::uint32_t scale_bytes;     // of a stage, in a CTA
  bool overlap;                  // its two accumulators share columns of tensor memory
  std::uint32_t together;        // of a tile in halves: Sm100Tile's kTogether; of others 0

  constexpr std::uint32_t tiles() const noexcept { return rows_shared * columns_shared; }
  constexpr std::uint32_t cluster() const noexcept { return ctas * tiles(); }
};

/// A GEMM on a device with `num_sms` SMs. `experts`: of a grouped GEMM, whose m is that of all of
/// them together.
struct Sm100Shape {
  std::int64_t m, n, k;
  std::int64_t num_sms;
  std::int64_t experts = 1;
};

inline constexpr std::int64_t kSm100StageK = 256;       ///< of K, in a stage
inline constexpr std::uint32_t kSm100AtomBytes = 2048;  ///< of block scales, of 128 rows in a stage
inline constexpr std::int64_t kSm100StoreColumns = 64;
inline constexpr std::int64_t kSm100RasterRows = 16;
inline constexpr std::uint32_t kSm100Together = 4;  ///< stages

/// How many clusters the device runs at the same time: the CTAs of each share a GPC, and take an SM
/// each. That a GPC has 18 SMs is assumed; those of a B200 are said to have 18 or 20.
constexpr std::int64_t wave_clusters(std::int64_t ctas, std::int64_t num_sms) noexcept {
  constexpr std::int64_t kGpcSms = 18;
  return num_sms / kGpcSms * (kGpcSms / ctas);
}

/// Likewise, at least one, if each splits K among `splits` times the CTAs of the tile. A pair of
/// SMs is never torn apart.
constexpr std::int64_t wave_clusters(const Sm100TileModel& tile, std::int64_t splits,
                                     std::int64_t num_sms) noexcept {
  const std::int64_t ctas = tile.cluster() * splits;
  return std::max<std::int64_t>(ctas == tile.ctas ? num_sms / ctas : wave_clusters(ctas, num_sms),
                                1);
}

/// Clocks from the start of the CTA that has the most tiles to its end: a closed form of the
/// discrete-event model of tests/sm100/timing_model.py, whose test compares the choices by both.
constexpr double sm100_clocks(const Sm100TileModel& tile, std::int64_t splits,
                              const Sm100Shape& shape, const Sm100Machine& machine) noexcept {
  using kernels::ceil_div;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const std::int64_t rows = tile.swapped ? shape.n : shape.m;
  const std::int64_t columns = tile.swapped ? shape.m : shape.n;
  const std::int64_t row_tiles = ceil_div(rows, std::int64_t{tile.rows});
  const std::int64_t column_tiles = ceil_div(columns, std::int64_t{tile.columns});
  // A cluster of several tiles may be half empty.
  const std::int64_t cluster_rows = ceil_div(row_tiles, std::int64_t{tile.columns_shared});
  const std::int64_t tiles =
      cluster_rows * ceil_div(column_tiles, std::int64_t{tile.rows_shared}) * tile.tiles();
  const std::int64_t in_wave = wave_clusters(tile, splits, shape.num_sms) * tile.tiles();
  const std::int64_t waves = ceil_div(tiles, in_wave);
  const double ctas = real(tile.ctas);
  const double active = real(std::min(tiles, in_wave) * splits) * ctas;

  // The bytes of a stage that a CTA gets, and those that it asks for itself. A mean tile: the last
  // ones of a row and of a column are smaller.
  const double mean_rows = real(rows) / real(row_tiles);
  const double mean_columns = real(columns) / real(column_tiles);
  const double of_rows = mean_rows / (mean_rows + mean_columns);
  const double of_data = kSm100StageK / (2 * ctas);
  const double row_bytes = mean_rows * of_data + kSm100AtomBytes;
  const double column_scales = real(tile.scale_bytes - kSm100AtomBytes);
  const double received = row_bytes + mean_columns * of_data + column_scales;
  // Each CTA of a pair asks for a part of the scales of the columns of both.
  const double asked = row_bytes / tile.rows_shared +
                       (mean_columns * of_data + column_scales / ctas) / tile.columns_shared;

  // Each byte comes from memory once, and from L2 as often as tiles share it. Columns are new in
  // each wave of the first group of rows, rows in the first wave of a group.
  const double groups = real(std::min(ceil_div(cluster_rows, kSm100RasterRows), waves));
  const double weights = real(std::min(shape.experts, row_tiles));
  const double new_columns =
      shape.experts > 1 ? std::max(1 / groups, weights / real(row_tiles)) : 1 / groups;
  const double missed = of_rows * groups / real(waves) + (1 - of_rows) * new_columns;
  const double latency =
      machine.l2_latency + missed * (machine.memory_latency - machine.l2_latency);
  const double unique = (real(shape.m) + weights * real(shape.n)) * real(shape.k) * (9.0 / 16);
  const double total = real(tiles) * ctas * asked * real(shape.k) / kSm100StageK;
  const double clocks_of_asked =
      std::max({active / machine.l2, latency / machine.in_flight,
                active / machine.memory * std::min(unique / total, 1.0)});
  const double load = machine.stage +
                      std::max(asked * clocks_of_asked, received / machine.ingress) +
                      (received - asked) * machine.multicast;

  // A stage waits for its bytes and for the MMAs before it; beyond those that there is room for,
  // also until the stage that was there is loaded, multiplied and free again.
  const double halves = tile.together != 0 ? 2 : 1;  // of the columns, each with MMAs of its own
  const double mma_columns = real(tile.columns) / halves;
  const double mma =
      halves * std::max(128.0 * mma_columns * kSm100StageK / machine.mma_rate,
                        (128 + mma_columns / ctas) * real(kSm100StageK) / 2 / machine.shared);
  const double loaded = std::max(latency, load);  // the first stage
  const double issued = machine.producer + machine.wake + machine.issue;
  const double ring = machine.wake + issued + loaded + mma + machine.mma_latency;
  const auto begun = [&](std::int64_t stage) {  // its MMA, if there was room for all stages before
    return std::max({loaded + real(stage) * mma, real(stage + 1) * load,
                     loaded + real(stage) * machine.producer});
  };
  const std::int64_t parts = ceil_div(ceil_div(shape.k, kSm100StageK), splits);
  const std::int64_t rounds = (parts - 1) / tile.stages;
  const double first =
      std::max(begun(parts - 1), real(rounds) * ring + begun(parts - 1 - rounds * tile.stages));
  const double period = real(parts) * std::max({load, machine.producer, mma, ring / tile.stages});

  const double store = real(tile.rows) / ctas * real(std::min(kSm100StoreColumns, columns)) * 2 *
                       active / machine.memory;
  const double chunks = real(ceil_div(std::int64_t{tile.columns}, kSm100StoreColumns));
  const double swapped = machine.swapped_epilogue + machine.swapped_column * tile.columns;
  const double chunk = std::max(tile.swapped ? swapped / chunks : machine.chunk, store);
  const double committed = machine.mma_latency + machine.wake;
  const double sums = real(tile.rows) * real(std::min<std::int64_t>(columns, tile.columns)) * 4 *
                      (1 - 1 / real(splits));  // its own share a CTA does not send
  const double epilogue = splits > 1 ? machine.split + sums / machine.dsmem : chunks * chunk;
  // Behind the first tile the epilogue of one is hidden behind the MMAs of the next, but for the
  // columns that both accumulators share, which are read first or, swapped, stored as well.
  // In halves, one half of a stage's MMAs is before and one behind these columns.
  const double shared = tile.swapped ? chunk : machine.read;
  const double waited = tile.overlap ? committed + shared : committed;
  const double next =
      std::max({period, real(parts) * mma + (halves > 1 ? std::max(waited - mma, 0.0) : waited),
                chunks * chunk});
  // In halves, the last tile's first half is read while the second is multiplied: that of several
  // stages, unless loads come too late for so many.
  const double begins = first + real(waves - 1) * next;  // the last stage
  const double together = real(std::min<std::int64_t>(tile.together, parts)) * mma / 2;
  const double late = std::max(real(waves * parts) * load - (begins + mma / 2 - together), 0.0);
  const double hidden = halves > 1 ? std::min(together - late, epilogue / 2) : 0;
  const double meet = tile.ctas > 1 ? 2 * machine.meet : 0;
  return (tile.swapped ? machine.swapped_setup + machine.swapped_drain
                       : machine.setup + machine.drain + meet) +
         issued + first + mma + committed + real(waves - 1) * next + epilogue - hidden;
}

/// From the launch to the end.
constexpr double sm100_us(const Sm100TileModel& tile, std::int64_t splits, const Sm100Shape& shape,
                          const Sm100Machine& machine) noexcept {
  return machine.launch_us + sm100_clocks(tile, splits, shape, machine) / machine.ghz / 1000;
}

}  // namespace cukiln::nvfp4
