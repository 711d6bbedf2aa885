// The NVFP4 GEMM on sm_100a, whose tensor core multiplies E2M1 by its block scales itself.
//
//   D[m, n] = bf16(A[m, :] . B[n, :] * alpha + bias[n]), alpha = the product of both decode scales
//
// Persistent and warp-specialised: one CTA for each SM (or a pair for two SMs) computes tile after tile.
// Two pairs of a cluster may compute two tiles side by side, whose rows are the same: each loads one half of
// them and multicasts it to both. Four may compute two by two tiles, and share columns likewise. A pair whose
// tile lies beyond the matrix loads zeros and stores nothing.
//
//   warp 0     producer: per stage 256 of K, data and block scales of both operands, by TMA
//   warp 1     MMA: copies block scales to tensor memory, issues four MMAs of K = 64 for each stage
//   warps 2-5  epilogue: tensor memory -> alpha, bias, bf16 -> shared memory -> D, by TMA
//
// Barriers. A pair uses those of its first CTA, except for `empty` and `tmem_full`, which each CTA has. Where
// pairs share loads, a stage is empty once the MMAs of all of them are complete.
//
//   full[stage]     the stage is loaded            empty[stage]    its MMAs are complete
//   tmem_full[i]    accumulator i is complete      tmem_empty[i]   accumulator i may be overwritten
//
// Where N is split (run_mma_split_n):
//
//   tmem_full[i]              one half of accumulator i is complete
//   tmem_full_second_half[i]  the other half is complete
//   tmem_empty[i]             the columns of accumulator i that the other one shares have been read
//   tmem_read[i]              all columns of accumulator i have been read
//
// "Rows" and "columns" are the MMA's M and N sides: A's rows and B's rows; or, with swapped operands, B's
// rows and A's rows, which wastes less where A has few: gemm_sm100_swapped.cuh has their producer and epilogue.
// TMA handles all edges: out-of-bounds loads give zero, out-of-bounds stores are dropped.
// Grouped: each 128 rows of A belong to one expert and are multiplied by its n rows of B, [experts * n, k];
// b_global_scale and bias have one entry for each expert. Row tiles whose expert is negative are neither
// computed nor stored, nor are those from *row_tile_count on.
//
// PDL: each role waits for the preceding kernel before it reads what that one may write, or writes what it
// may read. Before, barriers and tensor memory are set up, tensor maps are prefetched and, with constant_b,
// B's stages are loaded until the ring is full or the first tile ends.
#pragma once

#include "bf16.cuh"
#include "cluster.cuh"
#include "dependent_launch.cuh"
#include "gemm_sm100_tile.cuh"
#include "machine.cuh"
#include "pipeline.cuh"
#include "tcgen05.cuh"

namespace cukiln {
namespace nvfp4 {

// Waits until all threads of the cluster have arrived. Orders no memory access between them.
__device__ __forceinline__ void cluster_sync_relaxed() {
  cluster_arrive_relaxed();
  cluster_wait();
}

// The kernel's arguments. Only for grouped kernels: `experts`, one for each 128 rows of A;
// `a_scales`, an AScales; and `row_tile_count`, how many row tiles there are, or null if as many as m says.
struct Sm100Problem {
  const TensorMap& rows;
  const TensorMap& columns;
  const TensorMap& row_scales;
  const TensorMap& column_scales;
  const TensorMap& output;
  const float* a_global_scale;
  const float* b_global_scale;
  const u16* bias;
  u32 m;
  u32 n;
  u32 k;
  const int* experts;
  u32 a_scales;
  u32 constant_b;  // 1: the preceding kernel does not write B; 0 of grouped kernels
  const u32* row_tile_count;
  u16* d = nullptr;  // of swapped operands, which do not use `output`

  __device__ __forceinline__ u32 scale_atoms() const { return nvfp4::scale_atoms(k); }
  __device__ __forceinline__ u32 stages() const { return (scale_atoms() + kSteps - 1) / kSteps; }
};

// How many CTAs share a tile, each with a part of K.
template <class Tile>
__device__ __forceinline__ u32 splits_of_tile() {
  if constexpr (Tile::kSwapped) return cluster_size();
  return 1;
}

// value / ctas, rounded down, of a value below 2^29 and up to eight CTAs: with a product, since a division
// would keep the first load waiting.
__device__ __forceinline__ u32 divide_by_ctas(u32 value, u32 ctas) {
  u32 reciprocal = 0x80000000;  // 2^32 / ctas, rounded up
  if (ctas == 3) reciprocal = 0x55555556;
  if (ctas == 4) reciprocal = 0x40000000;
  if (ctas == 5) reciprocal = 0x33333334;
  if (ctas == 6) reciprocal = 0x2AAAAAAB;
  if (ctas == 7) reciprocal = 0x24924925;
  if (ctas == 8) reciprocal = 0x20000000;
  return ctas == 1 ? value : static_cast<u32>(u64{value} * reciprocal >> 32);
}

// The stages of K that a CTA multiplies.
struct StageRange {
  u32 begin;
  u32 end;
};

// All of them, or this CTA's share; CTAs beyond the number of stages have none.
template <class Tile>
__device__ __forceinline__ StageRange stages_of_cta(const Sm100Problem& problem) {
  const u32 stages = problem.stages();
  if constexpr (!Tile::kSwapped) return {0, stages};
  const u32 parts = min(cluster_size(), stages);
  const u32 part = min(block_rank_in_cluster(), parts);
  return {divide_by_ctas(stages * part, parts),
          divide_by_ctas(stages * min(part + 1, parts), parts)};
}

// The static persistent schedule: yields the tiles of this CTA, the same ones to every role. Tiles are
// ordered in groups of kRasterRows row tiles; within a group the row tile changes fastest. The tiles of a
// cluster count as one. `rank_in_cluster`: the CTA's.
template <class Tile>
struct TileScheduler {
  static constexpr u32 kRowsOfCluster = Tile::kColumnsShared * Tile::kCtas * Tile::kRows;
  const Sm100Problem& problem;
  u32 rank;
  u32 row_tiles;
  u32 column_tiles;
  u32 splits;
  u32 tile;
  u32 end;
  u32 row = 0;  // of this CTA
  u32 column = 0;
  u32 expert = 0;

  __device__ __forceinline__ TileScheduler(const Sm100Problem& arguments, u32 rank_in_cluster)
      : problem(arguments),
        rank(rank_in_cluster),
        row_tiles(((Tile::kSwapped ? arguments.n : arguments.m) + kRowsOfCluster - 1) / kRowsOfCluster),
        column_tiles(((Tile::kSwapped ? arguments.m : arguments.n) + Tile::kRowsShared * Tile::kColumns - 1) /
                     (Tile::kRowsShared * Tile::kColumns)),
        splits(splits_of_tile<Tile>()),
        tile(clusters_of(blockIdx.x)) {
    if constexpr (Tile::kGrouped) {
      if (arguments.row_tile_count != nullptr) row_tiles = min(row_tiles, *arguments.row_tile_count);
    }
    end = row_tiles * column_tiles;
    if (splits != 1 && block_rank_in_cluster() >= arguments.stages()) end = 0;
  }

  // How many clusters so many CTAs are.
  __device__ __forceinline__ u32 clusters_of(u32 ctas) const {
    return Tile::kSwapped ? divide_by_ctas(ctas, splits) : ctas / Tile::kClusterCtas;
  }

  // Sets row and column to those of `tile`, and returns its row tile.
  __device__ __forceinline__ u32 locate() {
    if (Tile::kSwapped && column_tiles == 1) {  // few tokens: no divisions before the first load
      row = tile * Tile::kRows;
      return tile;
    }
    const u32 first = tile / (kRasterRows * column_tiles) * kRasterRows;
    const u32 group_rows = min(kRasterRows, row_tiles - first);
    const u32 within = tile - first * column_tiles;
    const u32 row_tile = first + within % group_rows;
    row = row_tile * kRowsOfCluster + (row_in_cluster() * Tile::kCtas + rank % Tile::kCtas) * Tile::kRows;
    column = (within / group_rows * Tile::kRowsShared + column_in_cluster()) * Tile::kColumns;
    return row_tile;
  }

  // The place of this CTA's tile among those of the cluster, which are in rows of kRowsShared.
  __device__ __forceinline__ u32 row_in_cluster() const {
    return Tile::kColumnsShared == 1 ? 0 : rank / (Tile::kCtas * Tile::kRowsShared);
  }
  __device__ __forceinline__ u32 column_in_cluster() const {
    const u32 pair = rank / Tile::kCtas;
    return Tile::kColumnsShared == 1 ? pair : pair % Tile::kRowsShared;
  }

  // The row of an MMA that the tile's first one is.
  __device__ __forceinline__ u32 row_in_mma() const {
    return Tile::kRows == kTileRows ? 0 : row % kTileRows;
  }
  // Whether this row of an MMA is the tile's.
  __device__ __forceinline__ bool has_row(u32 mma_row) const {
    return Tile::kRows == kTileRows || mma_row / Tile::kRows == row_in_mma() / Tile::kRows;
  }

  __device__ __forceinline__ bool next() {
    while (tile < end) {
      const u32 row_tile = locate();
      tile += clusters_of(gridDim.x);
      if constexpr (Tile::kGrouped) {
        if (problem.experts[row_tile] < 0) continue;
        expert = static_cast<u32>(problem.experts[row_tile]);
      }
      return true;
    }
    return false;
  }
};

// Loads the rows of a stage, or this CTA's part of them for all that share them. `barrier`: that of its pair.
template <class Tile>
__device__ __forceinline__ void load_rows(typename Tile::Stage& stage, const Sm100Problem& problem,
                                          const TileScheduler<Tile>& tiles, u32 s, u32 barrier) {
  const u32 row = tiles.row;
  if constexpr (Tile::kRowsShared == 1) {
    tma_load<Tile::kCtas>(shared_address(stage.rows), &problem.rows, s * kStageBytes, row, barrier);
    tma_load<Tile::kCtas>(shared_address(stage.row_scales), &problem.row_scales, 0, s * kSteps,
                          row / kTileRows, barrier);
  } else {
    constexpr u32 kRows = kTileRows / Tile::kRowsShared;
    constexpr u32 kAtoms = kSteps / Tile::kRowsShared;
    const u32 part = tiles.column_in_cluster();
    u32 sharing = 0;  // the CTA of each pair that has these rows
#pragma unroll
    for (u32 i = 0; i < Tile::kRowsShared; ++i) sharing |= 1u << (tiles.rank + (i - part) * Tile::kCtas);
    tma_load_multicast(shared_address(stage.rows + part * kRows * kStageBytes), &problem.rows,
                       s * kStageBytes, row + part * kRows, barrier, sharing);
    tma_load_multicast(shared_address(stage.row_scales + part * kAtoms * kAtomBytes),
                       &problem.row_scales, 0, s * kSteps + part * kAtoms, row / kTileRows, barrier,
                       sharing);
  }
}

// Loads the columns of a stage, of which each CTA of a pair has a part, or this CTA's part for all that share
// them. `barrier`: that of its pair.
template <class Tile>
__device__ __forceinline__ void load_columns(typename Tile::Stage& stage,
                                             const Sm100Problem& problem,
                                             const TileScheduler<Tile>& tiles, u32 s, u32 barrier) {
  constexpr u32 kCtas = Tile::kCtas;
  const u32 first = tiles.expert * problem.n + tiles.column;
  const u32 column = first + tiles.rank % kCtas * (Tile::kMmaColumns / kCtas);
  if constexpr (kCtas == 1) {
    tma_load<1>(shared_address(stage.columns), &problem.columns, s * kStageBytes, column, barrier);
    tma_load<1>(shared_address(stage.column_scales), &problem.column_scales, 0, s * kSteps,
                first / kTileRows, barrier);
  } else {
    const u32 part = tiles.row_in_cluster();
    constexpr u32 kCtasOfRow = kCtas * Tile::kRowsShared;
    u32 sharing = 0;  // the CTA of each pair that has these columns
#pragma unroll
    for (u32 i = 0; i < Tile::kColumnsShared; ++i) sharing |= 1u << (tiles.rank + (i - part) * kCtasOfRow);
    if constexpr (Tile::kColumnsShared == 1) {
      tma_load<kCtas>(shared_address(stage.columns), &problem.columns, s * kStageBytes, column, barrier);
    } else {
      constexpr u32 kPart = Tile::kColumnParts;
      constexpr u32 kToNext = Tile::kSplitN ? Tile::kMmaColumns : kPart;  // of the matrix
      tma_load_multicast(shared_address(stage.columns + part * kPart * kStageBytes),
                         &problem.columns, s * kStageBytes, column + part * kToNext, barrier, sharing);
    }
    // Both CTAs of a pair need the scales of all its columns.
    const u32 rank_in_pair = tiles.rank % kCtas;
    const u32 scale_part = part * kCtas + rank_in_pair;
    const u32 atom = scale_part % Tile::kScaleAtomParts;
    const u32 step = scale_part / Tile::kScaleAtomParts * (kSteps / Tile::kScaleStepParts);
    tma_load_multicast(shared_address(stage.column_scales + (atom * kSteps + step) * kAtomBytes),
                       &problem.column_scales, 0, s * kSteps + step, first / kTileRows + atom, barrier,
                       (sharing >> rank_in_pair) * ((1u << kCtas) - 1));
  }
}

// The producer's end: a CTA must not exit while MMAs, its own or another's, may still arrive at its barriers.
template <class Tile>
__device__ __forceinline__ void drain_stages(typename Tile::Shared& shared,
                                             PipelineState<Tile::kStages> smem_pipe) {
#pragma unroll 1
  for (u32 i = 0; i < Tile::kStages; ++i, smem_pipe.advance()) {
    mbarrier_wait(shared_address(&shared.empty[smem_pipe.index]), smem_pipe.phase ^ 1);
  }
}

template <class Tile>
__device__ __forceinline__ void run_producer(typename Tile::Shared& shared,
                                             const Sm100Problem& problem, u32 rank) {
  constexpr u32 kCtas = Tile::kCtas;
  const StageRange stages = stages_of_cta<Tile>(problem);
  PipelineState<Tile::kStages> smem_pipe;
  static_assert(!Tile::kSwapped);
  // Loads stage s of a tile, A or B or both. B comes first, and has the barrier expect both.
  const auto load = [&](const TileScheduler<Tile>& tiles, u32 s, bool a, bool b) {
    auto& stage = shared.stage[smem_pipe.index];
    const u32 full = shared_address(&shared.full[smem_pipe.index]);
    const u32 loaded = kCtas == 1 ? full : address_in_rank(full, rank / kCtas * kCtas);
    if (b && rank % kCtas == 0) mbarrier_arrive_expect(full, kCtas * sizeof(stage));
    if (a) load_rows<Tile>(stage, problem, tiles, s, loaded);
    if (b) load_columns<Tile>(stage, problem, tiles, s, loaded);
  };

  u32 early = 0;  // stages of which B is loaded before the wait
  if constexpr (!Tile::kGrouped) {
    TileScheduler<Tile> first(problem, rank);
    if (problem.constant_b && first.next()) {
#pragma unroll 1
      for (; early < min(Tile::kStages, stages.end - stages.begin); ++early, smem_pipe.advance()) {
        load(first, stages.begin + early, false, true);
      }
      smem_pipe = {};
    }
  }
  griddepcontrol_wait();
  for (TileScheduler<Tile> tiles(problem, rank); tiles.next();) {
#pragma unroll 1
    for (u32 s = stages.begin; s < stages.end; ++s, smem_pipe.advance()) {
      if (early != 0) {
        --early;
        load(tiles, s, true, false);
      } else {
        mbarrier_wait(shared_address(&shared.empty[smem_pipe.index]), smem_pipe.phase ^ 1);
        load(tiles, s, true, true);
      }
    }
  }
  drain_stages<Tile>(shared, smem_pipe);
}

// Shared-memory descriptors of stage 0 at step 0. Those of other stages and steps differ by their addresses,
// in units of 16 bytes: a sum in the low word, since no stage exceeds the 14 bits that an address has.
template <class Tile>
struct StageDescriptors {
  static constexpr u32 kUnit = 16;
  static constexpr u32 kStage = sizeof(typename Tile::Stage) / kUnit;
  static constexpr u32 kSwizzleGroup = 8 * kStageBytes;
  u64 rows;
  u64 columns;
  u64 row_scales;
  u64 column_scales;

  __device__ __forceinline__ explicit StageDescriptors(typename Tile::Shared& shared) {
    auto& stage = shared.stage[0];
    rows = smem_descriptor(shared_address(stage.rows), kSwizzleGroup, Swizzle::k128Bytes);
    columns = smem_descriptor(shared_address(stage.columns), kSwizzleGroup, Swizzle::k128Bytes);
    row_scales = smem_descriptor(shared_address(stage.row_scales), kAtomBytes / 4, Swizzle::kNone);
    column_scales =
        smem_descriptor(shared_address(stage.column_scales), kAtomBytes / 4, Swizzle::kNone);
  }

  static __device__ __forceinline__ u64 at(u64 descriptor, u32 stage, u32 bytes) {
    const u32 low = static_cast<u32>(descriptor) + stage * kStage + bytes / kUnit;
    return (descriptor & ~u64{0xFFFFFFFF}) | low;
  }
};

// Columns of tensor memory, of 32 rows each, by which the scales of the last MMA of a step are not the first
// ones of an atom: tiles of 64 and 192 columns may begin in the middle of one.
template <class Tile>
__device__ __forceinline__ u32 first_scale_of(const Sm100Problem&, u32 column) {
  return Tile::kColumns % kTileRows != 0 ? column % kTileRows / 32 : 0;
}

// Issues the copies of a stage's scales.
template <class Tile>
__device__ __forceinline__ void copy_scales(const StageDescriptors<Tile>& of, u32 stage, u32 tmem) {
  constexpr u32 kCtas = Tile::kCtas;
#pragma unroll
  for (u32 j = 0; j < kSteps; ++j) {
    tcgen05_cp_scales<kCtas>(tmem + Tile::kRowScales + j * kAtomTmemColumns,
                             of.at(of.row_scales, stage, j * kAtomBytes));
    for (u32 atom = 0; atom < Tile::kColumnAtoms; ++atom) {
      tcgen05_cp_scales<kCtas>(
          tmem + Tile::kColumnScales + (j * Tile::kColumnAtoms + atom) * kAtomTmemColumns,
          of.at(of.column_scales, stage, (atom * kSteps + j) * kAtomBytes));
    }
  }
}

// Issues the MMAs of a stage's first `steps` steps, of K = 64 each: kMmas of those side by side from `begin` on.
// kWhole: it has all kSteps. `first_row`: the MMA's that is the tile's first. `first`: the sum begins anew.
template <class Tile, bool kWhole, u32 kMmas>
__device__ __forceinline__ void multiply_stage(const StageDescriptors<Tile>& of, u32 stage, u32 steps,
                                               u32 tmem, u32 accumulator, u32 first_scale,
                                               u32 first_row, bool first, u32 begin) {
  constexpr u32 kCtas = Tile::kCtas;
  constexpr u32 kInstruction = instruction_descriptor(kCtas * kTileRows, Tile::kMmaColumns);
#pragma unroll
  for (u32 j = 0; j < kSteps; ++j) {
    if (!kWhole && j >= steps) break;
    for (u32 of_mmas = 0; of_mmas < kMmas; ++of_mmas) {
      const u32 i = begin + of_mmas;
      tcgen05_mma<kCtas, Tile::kRows>(
          accumulator + i * Tile::kMmaColumns, of.at(of.rows, stage, j * kStepBytes),
          of.at(of.columns, stage,
                i * (Tile::kMmaColumns / kCtas) * kStageBytes + j * kStepBytes),
          kInstruction, tmem + Tile::kRowScales + j * kAtomTmemColumns,
          tmem + Tile::kColumnScales + (i + 1 == Tile::kMmas ? first_scale : 0) +
              (j * Tile::kColumnAtoms + i) * kAtomTmemColumns,
          !first || j != 0, first_row);
    }
  }
}

// Has a stage be empty, for all that share its loads, once the MMAs that were issued are complete.
template <class Tile>
__device__ __forceinline__ void commit_stage(typename Tile::Shared& shared,
                                             const PipelineState<Tile::kStages>& smem_pipe) {
  tcgen05_commit<Tile::kCtas>(shared_address(&shared.empty[smem_pipe.index]),
                              (1u << Tile::kClusterCtas) - 1);
}

// Waits for a stage, issues its copies of scales and its MMAs, as multiply_stage, and commits it.
template <class Tile, bool kWhole>
__device__ __forceinline__ void issue_stage(typename Tile::Shared& shared,
                                            const StageDescriptors<Tile>& descriptors,
                                            const PipelineState<Tile::kStages>& smem_pipe,
                                            u32 steps, u32 tmem, u32 accumulator,
                                            u32 first_scale, u32 first_row, bool first) {
  mbarrier_wait(shared_address(&shared.full[smem_pipe.index]), smem_pipe.phase);
  tcgen05_fence_after_sync();
  copy_scales<Tile>(descriptors, smem_pipe.index, tmem);
  multiply_stage<Tile, kWhole, Tile::kMmas>(descriptors, smem_pipe.index, steps, tmem, accumulator,
                                            first_scale, first_row, first, 0);
  commit_stage<Tile>(shared, smem_pipe);
}

template <class Tile, class Problem>
__device__ __forceinline__ void run_mma(typename Tile::Shared& shared, const Problem& problem,
                                        u32 rank, u32 tmem) {
  const StageDescriptors<Tile> descriptors(shared);
  const StageRange stages = stages_of_cta<Tile>(problem);
  // Only the last stage may have fewer steps: their number is tested in no other.
  const u32 last = stages.end - 1;
  const u32 last_steps = problem.scale_atoms() - last * kSteps;
  const u32 whole_end = last_steps < kSteps ? last : stages.end;
  PipelineState<Tile::kStages> smem_pipe;
  PipelineState<2> tmem_pipe;     // tmem_full: the accumulator of this tile
  // The accumulator to wait for: the previous tile's if the buffers overlap, else that of two tiles ago.
  PipelineState<2> tmem_empty_pipe;
  u32 tiles_in_flight = 0;
  for (TileScheduler<Tile> tiles(problem, rank); tiles.next(); tmem_pipe.advance()) {
    if (tiles_in_flight == (Tile::kOverlap != 0 ? 1 : 2)) {
      mbarrier_wait(shared_address(&shared.control.tmem_empty[tmem_empty_pipe.index]),
                    tmem_empty_pipe.phase);
      tmem_empty_pipe.advance();
    } else {
      ++tiles_in_flight;
    }
    tcgen05_fence_after_sync();
    const u32 accumulator = tmem + tmem_pipe.index * Tile::kSecondAccumulator;
    const u32 first_scale = first_scale_of<Tile>(problem, tiles.column);
#pragma unroll 1
    for (u32 s = stages.begin; s < whole_end; ++s, smem_pipe.advance()) {
      issue_stage<Tile, true>(shared, descriptors, smem_pipe, kSteps, tmem, accumulator,
                              first_scale, tiles.row_in_mma(), s == stages.begin);
    }
    if (whole_end == last) {
      issue_stage<Tile, false>(shared, descriptors, smem_pipe, last_steps, tmem, accumulator,
                               first_scale, tiles.row_in_mma(), last == stages.begin);
      smem_pipe.advance();
    }
    tcgen05_commit<Tile::kCtas>(shared_address(&shared.control.tmem_full[tmem_pipe.index]),
                                ((1u << Tile::kCtas) - 1) << rank);
  }
  if constexpr (Tile::kCtas != 1) {  // the other CTA's arrivals must not come after this one's end
    for (; tiles_in_flight != 0; --tiles_in_flight, tmem_empty_pipe.advance()) {
      mbarrier_wait(shared_address(&shared.control.tmem_empty[tmem_empty_pipe.index]),
                    tmem_empty_pipe.phase);
    }
  }
}

// Issues each stage as two MMAs of half of the N columns. The columns that both accumulators share are all in one
// half. In a tile's first stage that half is issued second, so that the other half's MMAs run while the epilogue
// reads the shared columns of the previous tile. In the last stage it is issued first, since the epilogue reads it
// first. At the end of the last tile the first halves of kEpilogueOverlapStages stages are issued before their
// second halves: nothing hides that epilogue, which begins so much sooner.
template <class Tile, class Problem>
__device__ __forceinline__ void run_mma_split_n(typename Tile::Shared& shared,
                                                  const Problem& problem, u32 rank, u32 tmem) {
  const StageDescriptors<Tile> descriptors(shared);
  constexpr u32 kPair = (1u << Tile::kCtas) - 1;
  const u32 stages = problem.stages();
  const u32 last_steps = problem.scale_atoms() - (stages - 1) * kSteps;
  PipelineState<Tile::kStages> smem_pipe;
  PipelineState<2> tmem_pipe;
  // Both return at once before the first tiles: no phase has begun that they would wait for.
  const auto wait_for_read = [&] {  // this accumulator, of two tiles ago
    mbarrier_wait(shared_address(&shared.tmem_read[tmem_pipe.index]), tmem_pipe.phase ^ 1);
  };
  const auto wait_for_shared = [&] {  // the other one's columns that this one has, too
    const u32 other = tmem_pipe.index ^ 1;
    mbarrier_wait(shared_address(&shared.control.tmem_empty[other]), tmem_pipe.phase ^ other);
  };
  for (TileScheduler<Tile> tiles(problem, rank); tiles.next(); tmem_pipe.advance()) {
    wait_for_read();
    const u32 accumulator = tmem + tmem_pipe.index * Tile::kSecondAccumulator;
    const u32 half_shared = tmem_pipe.index ^ 1;
    const u32 end = stages - (tiles.tile < tiles.end ? 1 : min(Tile::kEpilogueOverlapStages, stages));
    // Issues the MMAs of one half of stage s. `second`: its other half came before; `copies_again`: with other
    // stages between, whose scales took the place of its own.
    const auto issue_half = [&](const PipelineState<Tile::kStages>& pipe, u32 s, u32 half, bool second,
                                bool copies_again) {
      if (!second) {
        mbarrier_wait(shared_address(&shared.full[pipe.index]), pipe.phase);
        tcgen05_fence_after_sync();
      }
      if (!second || copies_again) copy_scales<Tile>(descriptors, pipe.index, tmem);
      if (s + 1 != stages || last_steps == kSteps) {
        multiply_stage<Tile, true, 1>(descriptors, pipe.index, kSteps, tmem, accumulator, 0, 0, s == 0, half);
      } else {
        multiply_stage<Tile, false, 1>(descriptors, pipe.index, last_steps, tmem, accumulator, 0, 0, s == 0,
                                       half);
      }
      if (second) commit_stage<Tile>(shared, pipe);
    };
    for (u32 s = 0; s < stages;) {
      // Either the first stage, or those from `end` on.
      const bool is_last = s == end;
      const u32 count = is_last ? stages - end : 1;
      auto pipe = smem_pipe;
#pragma unroll 1
      for (u32 second = 0; second < 2; ++second) {
        const u32 half = half_shared ^ second ^ (s == 0 && !is_last ? 1 : 0);
        if (s == 0 && half == half_shared) wait_for_shared();
        tcgen05_fence_after_sync();
        pipe = smem_pipe;
#pragma unroll 1
        for (u32 i = 0; i < count; ++i, pipe.advance()) {
          issue_half(pipe, s + i, half, second != 0, count != 1);
        }
        if (is_last) {
          u64* const complete = second == 0 ? shared.control.tmem_full : shared.tmem_full_second_half;
          tcgen05_commit<Tile::kCtas>(shared_address(&complete[tmem_pipe.index]), kPair << rank);
        }
      }
      smem_pipe = pipe;
      s += count;
#pragma unroll 1
      for (; s < end; ++s, smem_pipe.advance()) {
        issue_stage<Tile, true>(shared, descriptors, smem_pipe, kSteps, tmem, accumulator, 0, 0, false);
      }
    }
  }
  wait_for_shared();  // the other CTA's arrivals must not come after this one's end
  for (u32 i = 0; i < 2; ++i, tmem_pipe.advance()) wait_for_read();
}

// Two accumulators of a row as bf16: times alpha, plus bias, rounded once.
__device__ __forceinline__ u32 scaled_bf16x2(u32 low, u32 high, float alpha, float low_bias,
                                             float high_bias) {
  return bf16x2_rn(fma_rn(__uint_as_float(low), alpha, low_bias),
                   fma_rn(__uint_as_float(high), alpha, high_bias));
}

// Writes 32 accumulator columns, one lane (row) to a thread, to the left or right half of a store's box
// [lane][column], in TMA's 128-byte swizzle.
__device__ __forceinline__ void stage_columns(u8* staged, u32 lane, u32 half, const u32 (&sum)[32],
                                              float alpha, const u16* bias, u32 column, u32 n) {
#pragma unroll
  for (u32 c = 0; c < 32; c += 8) {
    uint4 b{0, 0, 0, 0};
    if (bias != nullptr && column + c < n) b = *reinterpret_cast<const uint4*>(bias + column + c);
    uint4 packed;
    packed.x = scaled_bf16x2(sum[c], sum[c + 1], alpha, low_bf16(b.x), high_bf16(b.x));
    packed.y = scaled_bf16x2(sum[c + 2], sum[c + 3], alpha, low_bf16(b.y), high_bf16(b.y));
    packed.z = scaled_bf16x2(sum[c + 4], sum[c + 5], alpha, low_bf16(b.z), high_bf16(b.z));
    packed.w = scaled_bf16x2(sum[c + 6], sum[c + 7], alpha, low_bf16(b.w), high_bf16(b.w));
    const u32 chunk = (half * 4 + c / 8) ^ lane % 8;
    *reinterpret_cast<uint4*>(staged + lane * 128 + chunk * 16) = packed;
  }
}

template <class Tile>
__device__ __forceinline__ void run_epilogue(typename Tile::Shared& shared,
                                             const Sm100Problem& problem, u32 rank, u32 tmem) {
  constexpr u32 kChunks = Tile::kColumns / Tile::kChunk;
  constexpr u32 kTmemEmptyAfter = Tile::kOverlap != 0 ? 1 : kChunks;
  const u32 lane = threadIdx.x % 32;
  const u32 quarter = threadIdx.x / 32 % 4;  // which 32 lanes of tensor memory this warp may read
  u32 buffer = 0;
  PipelineState<2> tmem_pipe;
  for (TileScheduler<Tile> tiles(problem, rank); tiles.next(); tmem_pipe.advance()) {
    const u32 row = tiles.row + quarter * 32;
    const u16* bias = problem.bias;
    u32 a_scale_index = kDecode;
    if constexpr (Tile::kGrouped) {
      if (bias != nullptr) bias += u64{tiles.expert} * problem.n;
      if (problem.a_scales == kScaleOfExpert) a_scale_index += 2 * tiles.expert;
      if (problem.a_scales == kScaleOfRow) a_scale_index += 2 * min(row + lane, problem.m - 1);
    }
    const float alpha =
        fma_rn(problem.a_global_scale[a_scale_index], problem.b_global_scale[tiles.expert * 2 + kDecode], 0.0f);
    const u32 tmem_empty = shared_address(&shared.control.tmem_empty[tmem_pipe.index]);
    const u32 tmem_empty_of_issuer = Tile::kCtas == 1
                                         ? tmem_empty
                                         : address_in_rank(tmem_empty, rank / Tile::kCtas * Tile::kCtas);

    mbarrier_wait(shared_address(&shared.control.tmem_full[tmem_pipe.index]), tmem_pipe.phase);
    tcgen05_fence_after_sync();
#pragma unroll 1
    for (u32 i = 0; i < kChunks; ++i, buffer ^= Tile::kStoreBuffers - 1) {
      const u32 chunk = (tmem_pipe.index == 0 ? kChunks - 1 - i : i) * Tile::kChunk;
      const u32 column = tiles.column + chunk;
      u8* const staged = shared.store[quarter][buffer];
      if constexpr (Tile::kSplitN) {
        if (i == kChunks / 2) {
          mbarrier_wait(shared_address(&shared.tmem_full_second_half[tmem_pipe.index]), tmem_pipe.phase);
          tcgen05_fence_after_sync();
        }
      }
      u32 sum[Tile::kChunk / kLoadColumns][kLoadColumns];
#pragma unroll
      for (u32 half = 0; half < Tile::kChunk / kLoadColumns; ++half) {
        tmem_load(tmem + (quarter * 32 << 16) + tmem_pipe.index * Tile::kSecondAccumulator + chunk +
                      half * 32,
                  sum[half]);
      }
      if (i + 1 == kTmemEmptyAfter) {  // before all else: MMAs of the next tile may wait for it
        tcgen05_fence_before_sync();
        mbarrier_arrive(tmem_empty_of_issuer);
      }
      if constexpr (Tile::kSplitN) {
        if (i + 1 == kChunks) {
          tcgen05_fence_before_sync();
          mbarrier_arrive(address_in_rank(shared_address(&shared.tmem_read[tmem_pipe.index]),
                                          rank / Tile::kCtas * Tile::kCtas));
        }
      }
      if (lane == 0) tma_store_wait_read<Tile::kStoreBuffers - 1>();
      __syncwarp();
#pragma unroll
      for (u32 half = 0; half < Tile::kChunk / kLoadColumns; ++half) {
        stage_columns(staged, lane, half, sum[half], alpha, bias, column + half * 32, problem.n);
      }
      async_proxy_fence();
      __syncwarp();
      if (lane == 0) {
        tma_store(&problem.output, column, row, shared_address(staged));
        tma_store_commit();
      }
    }
  }
  if (lane == 0) tma_store_wait_read<0>();
}

// A Problem derived from Sm100Problem may have its own run_producer, run_epilogue and first_scale_of.
template <class Tile, class Problem = Sm100Problem>
__device__ __forceinline__ void gemm_sm100(const Problem& problem) {
  constexpr u32 kCtas = Tile::kCtas;
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(dynamic_shared_memory());
  const u32 warp = threadIdx.x / 32;
  const u32 rank = kCtas == 1 ? 0 : block_rank_in_cluster();

  if (warp == 2 && elect_one_sync()) {
    prefetch_tensormap(&problem.rows);
    prefetch_tensormap(&problem.row_scales);
    prefetch_tensormap(&problem.columns);
    prefetch_tensormap(&problem.column_scales);
    prefetch_tensormap(&problem.output);
  }
  if (warp == 0 && elect_one_sync()) {
#pragma unroll  // a loop would have a fence for each iteration
    for (u32 i = 0; i < Tile::kStages; ++i) {
      mbarrier_init(shared_address(&shared.full[i]), 1);
      mbarrier_init(shared_address(&shared.empty[i]), Tile::kTiles);
    }
    for (u32 i = 0; i < 2; ++i) {
      if constexpr (Tile::kSplitN) {
        mbarrier_init(shared_address(&shared.tmem_read[i]), kCtas * kTileRows);
        mbarrier_init(shared_address(&shared.tmem_full_second_half[i]), 1);
      }
      mbarrier_init(shared_address(&shared.control.tmem_full[i]), 1);
      mbarrier_init(shared_address(&shared.control.tmem_empty[i]), kCtas * kTileRows);
    }
    mbarrier_init_fence();
  }
  __syncwarp();
  if constexpr (kCtas != 1) {  // a pair allocates together: both CTAs must be running
    cluster_sync_relaxed();  // mbarrier_init_fence was a release
  }
  if (warp == 1) tmem_alloc<kCtas>(shared_address(&shared.control.tmem));

  if (warp == 0) {  // needs no tensor memory
    if constexpr (kCtas == 1) named_barrier_arrive<kSm100Threads>(kSetUp); else cluster_arrive_relaxed();
    if (elect_one_sync()) run_producer<Tile>(shared, problem, rank);
    __syncwarp();
    if constexpr (kCtas != 1) cluster_wait();
  } else {
    tcgen05_fence_before_sync();
    if constexpr (kCtas == 1) {
      named_barrier_sync<kSm100Threads>(kSetUp);
    } else {
      named_barrier_sync<kSm100Threads - 32>(kSetUp);  // orders the address within the CTA
      cluster_sync_relaxed();
    }
    tcgen05_fence_after_sync();
    const u32 tmem = static_cast<u32>(shared.control.tmem);
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (warp == 1) {
      if (rank % kCtas == 0 && elect_one_sync()) {
        if constexpr (Tile::kSplitN) {
          run_mma_split_n<Tile>(shared, problem, rank, tmem);
        } else {
          run_mma<Tile>(shared, problem, rank, tmem);
        }
      }
    } else {
      run_epilogue<Tile>(shared, problem, rank, tmem);
    }
  }

  __syncwarp();
  tcgen05_fence_before_sync();
  __syncthreads();
  if constexpr (kCtas != 1) cluster_sync_relaxed();  // what others do in this CTA's shared memory was awaited
  tcgen05_fence_after_sync();
  if (warp == 1) tmem_dealloc<kCtas>(static_cast<u32>(shared.control.tmem));
}

}  // namespace nvfp4
}  // namespace cukiln
