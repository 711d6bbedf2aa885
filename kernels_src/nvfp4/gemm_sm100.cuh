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
#pragma once

#include "machine.cuh"
#include "sm100_tile.cuh"
#include "tcgen05.cuh"

namespace cukiln {
namespace nvfp4 {

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

// The tiles in the order of their numbers: groups of kGroupRows rows, in each column after column.
struct TileOrder {
  u32 row_tiles;
  u32 column_tiles;

  __device__ __forceinline__ u32 count() const { return row_tiles * column_tiles; }
  __device__ __forceinline__ void locate(u32 tile, u32* row, u32* column) const {
    const u32 group = tile / (kGroupRows * column_tiles);
    const u32 first = group * kGroupRows;
    const u32 rows = min(kGroupRows, row_tiles - first);
    const u32 within = tile - first * column_tiles;
    *row = first + within % rows;
    *column = within / rows;
  }
};

__device__ __forceinline__ u32 scaled_pair(u32 low, u32 high, float alpha, float low_bias,
                                           float high_bias) {
  return bf16x2_rn(multiply_add_rn(__uint_as_float(low), alpha, low_bias),
                   multiply_add_rn(__uint_as_float(high), alpha, high_bias));
}

template <class Tile>
__device__ __forceinline__ void gemm_sm100(const TensorMap& row_map, const TensorMap& column_map,
                                           const TensorMap& row_scale_map,
                                           const TensorMap& column_scale_map,
                                           const TensorMap& output_map, const float* gsa_a,
                                           const float* gsa_b, const u16* bias, u32 m, u32 n,
                                           u32 k) {
  constexpr u32 kCtas = Tile::kCtas;
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(dynamic_shared_memory());
  auto& control = shared.control;
  const u32 warp = threadIdx.x / 32;
  const u32 lane = threadIdx.x % 32;
  const u32 rank = kCtas == 1 ? 0 : rank_in_cluster();

  if (warp == 0 && elect_one()) {
    for (u32 i = 0; i < Tile::kStages; ++i) {
      mbarrier_init(shared_address(&shared.full[i]), 1);
      mbarrier_init(shared_address(&shared.empty[i]), 1);
    }
    for (u32 i = 0; i < 2; ++i) {
      mbarrier_init(shared_address(&control.filled[i]), 1);
      mbarrier_init(shared_address(&control.drained[i]), kCtas * kTileRows);
    }
    mbarrier_init_fence();
  }
  if (warp == 1) tmem_allocate<kCtas>(shared_address(&control.tmem));
  fence_before_sync();
  if constexpr (kCtas == 1) __syncthreads(); else cluster_sync();
  fence_after_sync();
  const u32 tmem = static_cast<u32>(control.tmem);

  const u32 row_count = Tile::kSwapped ? n : m;
  const u32 column_count = Tile::kSwapped ? m : n;
  const TileOrder order{(row_count + kCtas * kTileRows - 1) / (kCtas * kTileRows),
                        (column_count + Tile::kColumns - 1) / Tile::kColumns};
  const u32 first_tile = blockIdx.x / kCtas;
  const u32 tile_step = gridDim.x / kCtas;
  const u32 scale_atoms = (k + 63) / 64;
  const u32 stages = (scale_atoms + kSteps - 1) / kSteps;

  if (warp == 0) {
    if (elect_one()) {
      Turn<Tile::kStages> turn;
      for (u32 tile = first_tile; tile < order.count(); tile += tile_step) {
        u32 row_tile, column_tile;
        order.locate(tile, &row_tile, &column_tile);
        const u32 row = (row_tile * kCtas + rank) * kTileRows;
        const u32 column = column_tile * Tile::kColumns;
        for (u32 s = 0; s < stages; ++s, turn.advance()) {
          auto& stage = shared.stage[turn.index];
          const u32 full = shared_address(&shared.full[turn.index]);
          const u32 loaded = kCtas == 1 ? full : address_in_rank(full, 0);
          mbarrier_wait(shared_address(&shared.empty[turn.index]), turn.parity ^ 1);
          if (rank == 0) mbarrier_arrive_expect(full, kCtas * sizeof(stage));
          load_tile<kCtas>(shared_address(stage.rows), &row_map, s * kStageBytes, row, loaded);
          load_tile<kCtas>(shared_address(stage.columns), &column_map, s * kStageBytes,
                           column + rank * Tile::kColumnsLoaded, loaded);
          load_tile<kCtas>(shared_address(stage.row_scales), &row_scale_map, 0, s * kSteps,
                           row / kTileRows, loaded);
          load_tile<kCtas>(shared_address(stage.column_scales), &column_scale_map, 0, s * kSteps,
                           column / kTileRows, loaded);
        }
      }
      // The last products arrive here, too, and shared memory must still be ours then.
      for (u32 i = 0; i < Tile::kStages; ++i, turn.advance()) {
        mbarrier_wait(shared_address(&shared.empty[turn.index]), turn.parity ^ 1);
      }
    }
  } else if (warp == 1) {
    if (rank == 0 && elect_one()) {
      constexpr u32 kInstruction = instruction_descriptor(kCtas * kTileRows, Tile::kColumns);
      constexpr u32 kSwizzleGroup = 8 * kStageBytes;
      Turn<Tile::kStages> turn;
      Turn<2> half;     // the accumulator's
      Turn<2> drained;  // of the tile before (overlapping halves), or of the one before that
      u32 undrained = 0;
      for (u32 tile = first_tile; tile < order.count(); tile += tile_step, half.advance()) {
        if (undrained == (Tile::kOverlap != 0 ? 1 : 2)) {
          mbarrier_wait(shared_address(&control.drained[drained.index]), drained.parity);
          drained.advance();
        } else {
          ++undrained;
        }
        fence_after_sync();
        const u32 accumulator = tmem + half.index * Tile::kSecondHalf;
        for (u32 s = 0; s < stages; ++s, turn.advance()) {
          auto& stage = shared.stage[turn.index];
          const u32 steps = min(kSteps, scale_atoms - s * kSteps);
          mbarrier_wait(shared_address(&shared.full[turn.index]), turn.parity);
          fence_after_sync();
#pragma unroll
          for (u32 j = 0; j < kSteps; ++j) {
            copy_scales<kCtas>(tmem + Tile::kRowScales + j * kAtomColumns,
                               shared_descriptor(shared_address(stage.row_scales) + j * kScaleAtom,
                                                 kScaleAtom / 4, Swizzle::kNone));
            for (u32 atom = 0; atom < Tile::kColumnAtoms; ++atom) {
              copy_scales<kCtas>(
                  tmem + Tile::kColumnScales + (j * Tile::kColumnAtoms + atom) * kAtomColumns,
                  shared_descriptor(
                      shared_address(stage.column_scales) + (atom * kSteps + j) * kScaleAtom,
                      kScaleAtom / 4, Swizzle::kNone));
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
                            kInstruction, tmem + Tile::kRowScales + j * kAtomColumns,
                            tmem + Tile::kColumnScales + j * Tile::kColumnAtoms * kAtomColumns,
                            (s | j) != 0);
          }
          commit<kCtas>(shared_address(&shared.empty[turn.index]));
        }
        commit<kCtas>(shared_address(&control.filled[half.index]));
      }
    }
  } else {
    const u32 quarter = warp % 4;  // of tensor memory's lanes
    const float alpha = multiply_add_rn(gsa_a[1], gsa_b[1], 0.0f);
    u32 buffer = 0;
    Turn<2> half;
    for (u32 tile = first_tile; tile < order.count(); tile += tile_step, half.advance()) {
      u32 row_tile, column_tile;
      order.locate(tile, &row_tile, &column_tile);
      const u32 row = (row_tile * kCtas + rank) * kTileRows + quarter * 32;
      const u32 drained = shared_address(&control.drained[half.index]);
      const u32 drained_of_issuer = kCtas == 1 ? drained : address_in_rank(drained, 0);
      float row_bias = 0.0f;
      if (Tile::kSwapped && bias != nullptr && row + lane < n) {
        row_bias = __uint_as_float(u32{bias[row + lane]} << 16);
      }

      mbarrier_wait(shared_address(&control.filled[half.index]), half.parity);
      fence_after_sync();
      constexpr u32 kChunks = Tile::kColumns / kStoreColumns;
      constexpr u32 kDrainedAfter = Tile::kOverlap != 0 ? 1 : kChunks;
      for (u32 i = 0; i < kChunks; ++i, buffer ^= 1) {
        const u32 chunk = half.index == 0 ? kChunks - 1 - i : i;
        const u32 column = column_tile * Tile::kColumns + chunk * kStoreColumns;
        u8* const staged = shared.store[quarter][buffer];
        if (lane == 0) store_wait_read<1>();
        __syncwarp();
#pragma unroll
        for (u32 part = 0; part < 2; ++part) {
          u32 sum[32];
          tmem_load(tmem + (quarter * 32 << 16) + half.index * Tile::kSecondHalf +
                        chunk * kStoreColumns + part * 32,
                    sum);
          if constexpr (Tile::kSwapped) {  // [column][lane]
            u16* const to = reinterpret_cast<u16*>(staged) + part * 32 * 32 + lane;
#pragma unroll
            for (u32 c = 0; c < 32; c += 2) {
              const u32 pair = scaled_pair(sum[c], sum[c + 1], alpha, row_bias, row_bias);
              to[c * 32] = static_cast<u16>(pair);
              to[c * 32 + 32] = static_cast<u16>(pair >> 16);
            }
          } else {  // [lane][column], swizzled
#pragma unroll
            for (u32 c = 0; c < 32; c += 8) {
              const u32 first = column + part * 32 + c;
              uint4 b{0, 0, 0, 0};
              if (bias != nullptr && first < n) b = *reinterpret_cast<const uint4*>(bias + first);
              uint4 packed;
              const auto pair = [&](u32 at, u32 two) {
                return scaled_pair(sum[c + at], sum[c + at + 1], alpha, __uint_as_float(two << 16),
                                   __uint_as_float(two & 0xFFFF0000u));
              };
              packed.x = pair(0, b.x);
              packed.y = pair(2, b.y);
              packed.z = pair(4, b.z);
              packed.w = pair(6, b.w);
              const u32 at = (part * 4 + c / 8) ^ lane % 8;
              *reinterpret_cast<uint4*>(staged + lane * 128 + at * 16) = packed;
            }
          }
        }
        if (i + 1 == kDrainedAfter) {
          fence_before_sync();
          mbarrier_arrive(drained_of_issuer);
        }
        shared_writes_fence();
        __syncwarp();
        if (lane == 0) {
          const u32 source = shared_address(staged);
          if constexpr (Tile::kSwapped) {
            store_tile(&output_map, row, column, source);
          } else {
            store_tile(&output_map, column, row, source);
          }
          store_commit();
        }
      }
    }
    if (lane == 0) store_wait_read<0>();
  }

  __syncwarp();
  fence_before_sync();
  if constexpr (kCtas == 1) __syncthreads(); else cluster_sync();
  fence_after_sync();
  if (warp == 1) tmem_free<kCtas>(tmem);
}

}  // namespace nvfp4
}  // namespace cukiln

#define CUKILN_SM100_KERNEL(name, cluster, ...)                                                   \
  extern "C" __global__ void cluster __launch_bounds__(cukiln::nvfp4::kSm100Threads, 1)           \
      name(const __grid_constant__ cukiln::TensorMap rows,                                        \
           const __grid_constant__ cukiln::TensorMap columns,                                     \
           const __grid_constant__ cukiln::TensorMap row_scales,                                  \
           const __grid_constant__ cukiln::TensorMap column_scales,                               \
           const __grid_constant__ cukiln::TensorMap output, const float* gsa_a,                  \
           const float* gsa_b, const cukiln::u16* bias, cukiln::u32 m, cukiln::u32 n,             \
           cukiln::u32 k) {                                                                       \
    cukiln::nvfp4::gemm_sm100<cukiln::nvfp4::Sm100Tile<__VA_ARGS__>>(                             \
        rows, columns, row_scales, column_scales, output, gsa_a, gsa_b, bias, m, n, k);           \
  }

//                  name                columns, CTAs, swapped
CUKILN_SM100_KERNEL(nvfp4_gemm_128x128, , 128, 1, false)
CUKILN_SM100_KERNEL(nvfp4_gemm_128x256, , 256, 1, false)
CUKILN_SM100_KERNEL(nvfp4_gemm_256x256, __cluster_dims__(2, 1, 1), 256, 2, false)
CUKILN_SM100_KERNEL(nvfp4_gemm_swapped, , 64, 1, true)
#undef CUKILN_SM100_KERNEL
