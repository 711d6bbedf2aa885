// The grouped GEMM of a mixture of experts for tiles of few tokens: each weight is read once for each tile,
// and loading weights is what takes the time.
//
// A thread block multiplies 128 rows of an expert's weights (one row of atoms) by the tokens of a tile;
// each of its four warps takes 32 rows. Every thread loads the data and scales that it will use itself, by
// cp.async into its own slots of a ring in shared memory, kStages - 1 groups of 128 of K ahead, so no
// barrier is between the loads and the MMAs. Weights are mma.sync's 16-row operand, dequantised in
// registers; tokens are its 8 columns, dequantised once in shared memory in the lanes' order. Latency is
// hidden by many small thread blocks on each SM.
#pragma once

#include "async_copy.cuh"
#include "gemm_sm90_dequantize.cuh"

namespace cukiln {
namespace nvfp4 {

// cp.async of 16 bytes, bypassing L1; writes zeros where `bytes` is 0.
__device__ __forceinline__ void cp_async_16(u32 to, const u8* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_4(u32 to, const u8* from, u32 bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// 128 rows of one expert's weights from row `first` on. Rows from `limit` on belong to others.
struct WeightRows {
  const u8* data;   // packed data of the expert's first row
  const u8* scales;  // the expert's first atom
  u32 first;
  u32 limit;
};

// Tokens: packed data, and linear block scales, one byte for 16 columns.
struct TokenMatrix {
  const u8* data;
  const u8* scales;
};

// kStages: slots of the ring. kPanel: groups of 128 of K whose tokens are in shared memory at a time.
template <u32 kTokens, u32 kStages, u32 kPanel>
struct SkinnyGemm {
  static constexpr u32 kWarps = 4;
  static constexpr u32 kThreads = 32 * kWarps;
  static constexpr u32 kTokenTiles = kTokens / 8;
  static constexpr u32 kItems = kPanel * kTokenTiles / kWarps;  // token tiles that a warp stages for a panel
  static constexpr u32 kPitch = kAtomRows + 4;                  // floats of a token's sums in shared memory
  static constexpr u32 kStageVectors = 5 * kThreads;  // of 16 bytes: each thread's data of four rows, and scales
  static constexpr u32 kTokenVectors = kPanel * kTokenTiles * 4 * 32;  // of 16 bytes
  static constexpr u32 kSharedBytes = (kTokenVectors + kStages * kStageVectors) * 16;
  static_assert(kWarps % kTokenTiles == 0, "a warp stages one tile of tokens");
  static_assert(kItems * kWarps == kPanel * kTokenTiles, "and all warps stage equally many");
  static_assert(kTokens * kPitch * 4 <= kSharedBytes, "the sums fit where tokens and weights were");

  // Computes sums[token * kPitch + row] in `shared` over groups [begin, end) of K, times 2^-28 and without
  // the global scales. Ends with a barrier. `row_of(i)` is the row in `tokens` of token i of the tile.
  template <class RowOf>
  static __device__ __forceinline__ void run(uint4* shared, const WeightRows& rows,
                                             const TokenMatrix& tokens, u32 count, RowOf row_of,
                                             u32 columns, u32 begin, u32 end) {
    const u32 lane = threadIdx.x & 31;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 warp = threadIdx.x >> 5;
    const u32 lane_row = warp * 8 + g;  // and the rows 32, 64 and 96 further
    const u32 row_bytes = columns / 2;
    const u32 k_atoms = scale_atoms(columns);
    const bool aligned = rows.first % kAtomRows == 0;
    uint4* const ring = shared + kTokenVectors + threadIdx.x;
    const u32 ring_address = shared_address(ring);

    // Rows beyond the limit are not stored: any row may be loaded for them.
    const u32 rows_left = rows.limit - min(rows.first + lane_row, rows.limit - 1);
    const u8* const lane_data =
        rows.data + static_cast<u64>(rows.limit - rows_left) * row_bytes + t * kLaneBytes;
    const u8* const lane_atoms =
        rows.scales + (static_cast<u64>(rows.first / kAtomRows) * k_atoms + t / 2) * kAtomBytes +
        lane_row * 16;

    const auto load_weights = [&](u32 group, u32 stage) {
      if (group < end) {
        const u32 bytes = group * kGroupK + t * kLaneK < columns ? 16 : 0;
        const u32 to = ring_address + stage * kStageVectors * 16;
        const u32 offset = group * 2 * kAtomBytes;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          cp_async_16(to + i * kThreads * 16,
                      lane_data + ((32 * i < rows_left ? 32 * i : 0) * row_bytes +
                                   group * (kGroupK / 2)),
                      bytes);
        }
        if (aligned) {
          cp_async_16(to + 4 * kThreads * 16, lane_atoms + offset, bytes);
        } else {  // width not a multiple of 128: the up half begins inside an atom
          for (u32 i = 0; i < 4; ++i) {
            const u32 row = min(rows.first + lane_row + 32 * i, rows.limit - 1);
            cp_async_4(to + 4 * kThreads * 16 + i * 4,
                       rows.scales + (row / kAtomRows * k_atoms + t / 2) * kAtomBytes +
                           CUKILN_SCALE_ROW_OFFSET(row) + offset,
                       bytes / 4);
          }
        }
      }
      cp_async_commit();
    };

#pragma unroll
    for (u32 i = 0; i + 1 < kStages; ++i) load_weights(begin + i, i);

    // A warp stages tokens of one token tile. Tokens beyond `count` keep old values: a column of the result
    // depends on its own token only.
    const u32 token = warp % kTokenTiles * 8 + g;
    const u64 token_block = token < count
                                ? static_cast<u64>(row_of(token)) * (columns / 16) + t * 2
                                : 0;
    uint4 data[kItems];
    u32 scale_bytes[kItems];
    const auto fetch_tokens = [&](u32 panel) {
#pragma unroll
      for (u32 i = 0; i < kItems; ++i) {
        const u32 group = panel + (warp + i * kWarps) / kTokenTiles;
        data[i] = {0, 0, 0, 0};
        scale_bytes[i] = 0;
        if (token < count && group < end && group * kGroupK + t * kLaneK < columns) {
          const u64 first = token_block + group * (kGroupK / 16);
          data[i] = *reinterpret_cast<const uint4*>(tokens.data + first * 8);
          scale_bytes[i] = *reinterpret_cast<const u16*>(tokens.scales + first);
        }
      }
    };
    const auto stage_tokens = [&] {
#pragma unroll
      for (u32 i = 0; i < kItems; ++i) {
        if (token >= count) continue;
        u32 scales[2];
        lane_scales(scale_bytes[i], 0x1100u, scales);
        uint4* const to_lane = shared + (warp + i * kWarps) * 4 * 32 + lane;
#pragma unroll
        for (u32 w = 0; w < 4; ++w) {
          u32 pairs[4];
          e2m1x8_to_f16x2(word_of(data[i], w), pairs);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) pairs[j] = mul_f16x2(pairs[j], scales[w / 2]);
          to_lane[w * 32] = {pairs[0], pairs[1], pairs[2], pairs[3]};
        }
      }
    };

    float sum[2][kTokenTiles][4] = {};
    const u32 used_tiles = (count + 7) / 8;
    const u32 selector = lane_scale_selector(t);
    const auto mma_group = [&](u32 index, u32 stage) {
      const uint4* const from_ring = ring + stage * kStageVectors;
      const uint4* const from_lane = shared + index * kTokenTiles * 4 * 32 + lane;
      const uint4 words = from_ring[4 * kThreads];
      u32 scales[4][2];
      uint4 data_of_row[4];
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        lane_scales(word_of(words, i), selector, scales[i]);
        data_of_row[i] = from_ring[i * kThreads];
      }
#pragma unroll
      for (u32 w = 0; w < 4; ++w) {
        u32 operand[2][2][4];  // of two MMAs for rows 0 and 32, and two for 64 and 96
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          u32 pairs[4];
          e2m1x8_to_f16x2(word_of(data_of_row[i], w), pairs);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) {
            operand[i / 2][j / 2][j % 2 * 2 + i % 2] = mul_f16x2(pairs[j], scales[i][w / 2]);
          }
        }
#pragma unroll
        for (u32 tile = 0; tile < kTokenTiles; ++tile) {
          if (tile != 0 && tile >= used_tiles) break;
          const uint4 of_token = from_lane[(tile * 4 + w) * 32];
#pragma unroll
          for (u32 half = 0; half < 2; ++half) {
            mma_m16n8k16(sum[half][tile], operand[half][0], of_token.x, of_token.y);
            mma_m16n8k16(sum[half][tile], operand[half][1], of_token.z, of_token.w);
          }
        }
      }
    };

    u32 stage = 0;
    fetch_tokens(begin);
    for (u32 panel = begin; panel < end; panel += kPanel) {
      const u32 panel_end = min(panel + kPanel, end);
      if (panel != begin) __syncthreads();
      stage_tokens();
      __syncthreads();
      if (panel_end < end) fetch_tokens(panel_end);
      for (u32 group = panel; group < panel_end; ++group) {
        load_weights(group + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
        cp_async_wait<kStages - 1>();
        mma_group(group - panel, stage);
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
    }

    cp_async_wait<0>();
    __syncthreads();
    float* const sums = reinterpret_cast<float*>(shared);
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
#pragma unroll
      for (u32 tile = 0; tile < kTokenTiles; ++tile) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          sums[(tile * 8 + t * 2 + i % 2) * kPitch + lane_row + 32 * (2 * half + i / 2)] =
              sum[half][tile][i];
        }
      }
    }
    __syncthreads();
  }
};

}  // namespace nvfp4
}  // namespace cukiln
