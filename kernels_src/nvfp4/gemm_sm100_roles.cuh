// The NVFP4 product on sm_100a, where the tensor core multiplies codes and block scales itself.
//
//   D[m, n] = bf16(A[m, :] . B[n, :] * alpha + bias[n]), alpha = gsa_a[1] * gsa_b[1]
//
// One persistent CTA (or pair of CTAs) a multiprocessor (or two), tile after tile, six warps:
//
//   warp 0     loads: per stage 256 of K, codes and block scales of both operands, by TMA
//   warp 1     issues: copies scales to tensor memory, four products of 64 of K a stage
//   warps 2-5  finish: tensor memory -> alpha, bias, bf16 -> shared memory -> D, by TMA
//
// Barriers (of a pair, those of rank 0 but for `empty` and `filled`, which both have):
//
//   full[stage]    loaded                          empty[stage]  its products are done
//   filled[half]   an accumulator is complete      drained[half] the next one may use its columns
//
// "Rows" and "columns" are the tensor core's: rows are A's and columns B's, or, swapped, the other
// way round, which wastes less where A has few rows. All edges are TMA's: what it reads beyond a
// tensor is zero, what it writes there is dropped.
//
// Grouped: each 128 rows of A have an expert, whose n rows of B they are multiplied by; B is
// [experts * n, k], gsa_b and bias are one for each expert, and rows whose expert is negative are
// left alone.
#pragma once

#include "gemm_sm100_tile.cuh"
#include "machine.cuh"
#include "tcgen05.cuh"

namespace cukiln {
namespace nvfp4 {

// What a launch is given. Only where grouped: `experts`, one for each 128 rows, and `gsa_a_stride`,
// floats from one expert's to the next's.
struct Sm100Problem {
  const TensorMap& rows;
  const TensorMap& columns;
  const TensorMap& row_scales;
  const TensorMap& column_scales;
  const TensorMap& output;
  const float* gsa_a;
  const float* gsa_b;
  const u16* bias;
  u32 m;
  u32 n;
  u32 k;
  const int* experts;
  u32 gsa_a_stride;

  __device__ __forceinline__ u32 scale_atoms() const { return nvfp4::scale_atoms(k); }
  __device__ __forceinline__ u32 stages() const { return (scale_atoms() + kSteps - 1) / kSteps; }
};

// A place in a ring of barriers, and the parity of its phase this time round.
template <u32 kSize>
struct Turn {
  u32 index = 0;
  u32 parity = 0;

  __device__ __forceinline__ void advance() {
    if (++index == kSize) {
      index = 0;
      parity ^= 1;
    }
  }
};

// The tiles of a CTA one after the other, the same ones for every role: groups of kGroupRows rows,
// in each column after column.
template <class Tile>
struct Walk {
  const Sm100Problem& problem;
  u32 rank;
  u32 row_tiles;
  u32 column_tiles;
  u32 tile;
  u32 row = 0;  // of this CTA
  u32 column = 0;
  u32 expert = 0;

  __device__ __forceinline__ Walk(const Sm100Problem& of, u32 rank_in_pair)
      : problem(of),
        rank(rank_in_pair),
        row_tiles(((Tile::kSwapped ? of.n : of.m) + Tile::kCtas * kTileRows - 1) /
                  (Tile::kCtas * kTileRows)),
        column_tiles(((Tile::kSwapped ? of.m : of.n) + Tile::kColumns - 1) / Tile::kColumns),
        tile(blockIdx.x / Tile::kCtas) {}

  __device__ __forceinline__ bool next() {
    while (tile < row_tiles * column_tiles) {
      const u32 first = tile / (kGroupRows * column_tiles) * kGroupRows;
      const u32 rows = min(kGroupRows, row_tiles - first);
      const u32 within = tile - first * column_tiles;
      const u32 row_tile = first + within % rows;
      tile += gridDim.x / Tile::kCtas;
      if constexpr (Tile::kGrouped) {
        if (problem.experts[row_tile] < 0) continue;
        expert = static_cast<u32>(problem.experts[row_tile]);
      }
      row = (row_tile * Tile::kCtas + rank) * kTileRows;
      column = within / rows * Tile::kColumns;
      return true;
    }
    return false;
  }
};

template <class Tile>
__device__ __forceinline__ void load_tiles(typename Tile::Shared& shared,
                                           const Sm100Problem& problem, u32 rank) {
  constexpr u32 kCtas = Tile::kCtas;
  Turn<Tile::kStages> turn;
  for (Walk<Tile> at(problem, rank); at.next();) {
    const u32 column = at.expert * problem.n + at.column;
#pragma unroll 1
    for (u32 s = 0; s < problem.stages(); ++s, turn.advance()) {
      auto& stage = shared.stage[turn.index];
      const u32 full = shared_address(&shared.full[turn.index]);
      const u32 loaded = kCtas == 1 ? full : address_in_rank(full, 0);
      mbarrier_wait(shared_address(&shared.empty[turn.index]), turn.parity ^ 1);
      if (rank == 0) mbarrier_arrive_expect(full, kCtas * sizeof(stage));
      load_tile<kCtas>(shared_address(stage.rows), &problem.rows, s * kStageBytes, at.row, loaded);
      load_tile<kCtas>(shared_address(stage.columns), &problem.columns, s * kStageBytes,
                       column + rank * Tile::kColumnsLoaded, loaded);
      load_tile<kCtas>(shared_address(stage.row_scales), &problem.row_scales, 0, s * kSteps,
                       at.row / kTileRows, loaded);
      load_tile<kCtas>(shared_address(stage.column_scales), &problem.column_scales, 0, s * kSteps,
                       column / kTileRows, loaded);
    }
  }
  // The last products arrive here, too, and shared memory must still be ours then.
#pragma unroll 1
  for (u32 i = 0; i < Tile::kStages; ++i, turn.advance()) {
    mbarrier_wait(shared_address(&shared.empty[turn.index]), turn.parity ^ 1);
  }
}

template <class Tile>
__device__ __forceinline__ void issue_products(typename Tile::Shared& shared,
                                               const Sm100Problem& problem, u32 tmem) {
  constexpr u32 kCtas = Tile::kCtas;
  constexpr u32 kInstruction = instruction_descriptor(kCtas * kTileRows, Tile::kColumns);
  constexpr u32 kSwizzleGroup = 8 * kStageBytes;
  Turn<Tile::kStages> turn;
  Turn<2> half;     // the accumulator's
  Turn<2> drained;  // of the tile before (overlapping halves), or of the one before that
  u32 undrained = 0;
  for (Walk<Tile> at(problem, 0); at.next(); half.advance()) {
    if (undrained == (Tile::kOverlap != 0 ? 1 : 2)) {
      mbarrier_wait(shared_address(&shared.control.drained[drained.index]), drained.parity);
      drained.advance();
    } else {
      ++undrained;
    }
    fence_after_sync();
    const u32 accumulator = tmem + half.index * Tile::kSecondHalf;
#pragma unroll 1
    for (u32 s = 0; s < problem.stages(); ++s, turn.advance()) {
      auto& stage = shared.stage[turn.index];
      const u32 steps = min(kSteps, problem.scale_atoms() - s * kSteps);
      mbarrier_wait(shared_address(&shared.full[turn.index]), turn.parity);
      fence_after_sync();
#pragma unroll
      for (u32 j = 0; j < kSteps; ++j) {
        copy_scales<kCtas>(tmem + Tile::kRowScales + j * kAtomTmemColumns,
                           shared_descriptor(shared_address(stage.row_scales) + j * kAtomBytes,
                                             kAtomBytes / 4, Swizzle::kNone));
        for (u32 atom = 0; atom < Tile::kColumnAtoms; ++atom) {
          copy_scales<kCtas>(
              tmem + Tile::kColumnScales + (j * Tile::kColumnAtoms + atom) * kAtomTmemColumns,
              shared_descriptor(
                  shared_address(stage.column_scales) + (atom * kSteps + j) * kAtomBytes,
                  kAtomBytes / 4, Swizzle::kNone));
        }
      }
#pragma unroll
      for (u32 j = 0; j < kSteps; ++j) {
        if (j >= steps) break;
        multiply<kCtas>(accumulator,
                        shared_descriptor(shared_address(stage.rows) + j * kStepBytes,
                                          kSwizzleGroup, Swizzle::k128Bytes),
                        shared_descriptor(shared_address(stage.columns) + j * kStepBytes,
                                          kSwizzleGroup, Swizzle::k128Bytes),
                        kInstruction, tmem + Tile::kRowScales + j * kAtomTmemColumns,
                        tmem + Tile::kColumnScales + j * Tile::kColumnAtoms * kAtomTmemColumns,
                        (s | j) != 0);
      }
      commit<kCtas>(shared_address(&shared.empty[turn.index]));
    }
    commit<kCtas>(shared_address(&shared.control.filled[half.index]));
  }
}

__device__ __forceinline__ float low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(u32 pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

// Two sums of a row, finished.
__device__ __forceinline__ u32 finished(u32 low, u32 high, float alpha, float low_bias,
                                        float high_bias) {
  return bf16x2_rn(multiply_add_rn(__uint_as_float(low), alpha, low_bias),
                   multiply_add_rn(__uint_as_float(high), alpha, high_bias));
}

// 32 columns of the accumulator, one lane a thread, as `part` of a store's box [lane][column], which
// TMA swizzles.
__device__ __forceinline__ void stage_columns(u8* staged, u32 lane, u32 part, const u32 (&sum)[32],
                                              float alpha, const u16* bias, u32 column, u32 n) {
#pragma unroll
  for (u32 c = 0; c < 32; c += 8) {
    uint4 b{0, 0, 0, 0};
    if (bias != nullptr && column + c < n) b = *reinterpret_cast<const uint4*>(bias + column + c);
    uint4 packed;
    packed.x = finished(sum[c], sum[c + 1], alpha, low_bf16(b.x), high_bf16(b.x));
    packed.y = finished(sum[c + 2], sum[c + 3], alpha, low_bf16(b.y), high_bf16(b.y));
    packed.z = finished(sum[c + 4], sum[c + 5], alpha, low_bf16(b.z), high_bf16(b.z));
    packed.w = finished(sum[c + 6], sum[c + 7], alpha, low_bf16(b.w), high_bf16(b.w));
    const u32 piece = (part * 4 + c / 8) ^ lane % 8;
    *reinterpret_cast<uint4*>(staged + lane * 128 + piece * 16) = packed;
  }
}

// The same as part of a box [column][lane], for swapped operands.
__device__ __forceinline__ void stage_lanes(u8* staged, u32 lane, u32 part, const u32 (&sum)[32],
                                            float alpha, float bias) {
  u16* const to = reinterpret_cast<u16*>(staged) + part * 32 * 32 + lane;
#pragma unroll
  for (u32 c = 0; c < 32; c += 2) {
    const u32 pair = finished(sum[c], sum[c + 1], alpha, bias, bias);
    to[c * 32] = static_cast<u16>(pair);
    to[c * 32 + 32] = static_cast<u16>(pair >> 16);
  }
}

template <class Tile>
__device__ __forceinline__ void finish_tiles(typename Tile::Shared& shared,
                                             const Sm100Problem& problem, u32 rank, u32 tmem) {
  constexpr u32 kChunks = Tile::kColumns / kStoreColumns;
  constexpr u32 kDrainedAfter = Tile::kOverlap != 0 ? 1 : kChunks;
  const u32 lane = threadIdx.x % 32;
  const u32 quarter = threadIdx.x / 32 % 4;  // of tensor memory's lanes
  u32 buffer = 0;
  Turn<2> half;
  for (Walk<Tile> at(problem, rank); at.next(); half.advance()) {
    const u32 row = at.row + quarter * 32;
    const u16* bias = problem.bias;
    u32 gsa_a = 1;
    if constexpr (Tile::kGrouped) {
      if (bias != nullptr) bias += u64{at.expert} * problem.n;
      gsa_a += at.expert * problem.gsa_a_stride;
    }
    const float alpha =
        multiply_add_rn(problem.gsa_a[gsa_a], problem.gsa_b[at.expert * 2 + 1], 0.0f);
    float row_bias = 0.0f;
    if (Tile::kSwapped && bias != nullptr && row + lane < problem.n) {
      row_bias = low_bf16(bias[row + lane]);
    }
    const u32 drained = shared_address(&shared.control.drained[half.index]);
    const u32 drained_of_issuer = Tile::kCtas == 1 ? drained : address_in_rank(drained, 0);

    mbarrier_wait(shared_address(&shared.control.filled[half.index]), half.parity);
    fence_after_sync();
#pragma unroll 1
    for (u32 i = 0; i < kChunks; ++i, buffer ^= 1) {
      const u32 chunk = (half.index == 0 ? kChunks - 1 - i : i) * kStoreColumns;
      const u32 column = at.column + chunk;
      u8* const staged = shared.store[quarter][buffer];
      if (lane == 0) store_wait_read<1>();
      __syncwarp();
#pragma unroll
      for (u32 part = 0; part < 2; ++part) {
        u32 sum[32];
        tmem_load(tmem + (quarter * 32 << 16) + half.index * Tile::kSecondHalf + chunk + part * 32,
                  sum);
        if constexpr (Tile::kSwapped) {
          stage_lanes(staged, lane, part, sum, alpha, row_bias);
        } else {
          stage_columns(staged, lane, part, sum, alpha, bias, column + part * 32, problem.n);
        }
      }
      if (i + 1 == kDrainedAfter) {
        fence_before_sync();
        mbarrier_arrive(drained_of_issuer);
      }
      shared_writes_fence();
      __syncwarp();
      if (lane == 0) {
        store_tile(&problem.output, Tile::kSwapped ? row : column, Tile::kSwapped ? column : row,
                   shared_address(staged));
        store_commit();
      }
    }
  }
  if (lane == 0) store_wait_read<0>();
}

template <class Tile>
__device__ __forceinline__ void gemm_sm100(const Sm100Problem& problem) {
  constexpr u32 kCtas = Tile::kCtas;
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(dynamic_shared_memory());
  const u32 warp = threadIdx.x / 32;
  const u32 rank = kCtas == 1 ? 0 : rank_in_cluster();

  if (warp == 0 && elect_one()) {
#pragma unroll 1
    for (u32 i = 0; i < Tile::kStages; ++i) {
      mbarrier_init(shared_address(&shared.full[i]), 1);
      mbarrier_init(shared_address(&shared.empty[i]), 1);
    }
    for (u32 i = 0; i < 2; ++i) {
      mbarrier_init(shared_address(&shared.control.filled[i]), 1);
      mbarrier_init(shared_address(&shared.control.drained[i]), kCtas * kTileRows);
    }
    mbarrier_init_fence();
  }
  __syncwarp();
  if constexpr (kCtas != 1) cluster_sync();  // a pair allocates together: both must have begun
  if (warp == 1) tmem_allocate<kCtas>(shared_address(&shared.control.tmem));
  fence_before_sync();
  if constexpr (kCtas == 1) __syncthreads(); else cluster_sync();
  fence_after_sync();
  const u32 tmem = static_cast<u32>(shared.control.tmem);

  if (warp == 0) {
    if (elect_one()) load_tiles<Tile>(shared, problem, rank);
  } else if (warp == 1) {
    if (rank == 0 && elect_one()) issue_products<Tile>(shared, problem, tmem);
  } else {
    finish_tiles<Tile>(shared, problem, rank, tmem);
  }

  __syncwarp();
  fence_before_sync();
  if constexpr (kCtas == 1) __syncthreads(); else cluster_sync();
  fence_after_sync();
  if (warp == 1) tmem_free<kCtas>(tmem);
}

}  // namespace nvfp4
}  // namespace cukiln
