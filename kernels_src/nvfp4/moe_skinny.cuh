// The grouped matrix product of a mixture of experts, by tiles of a few tokens: every weight is read
// once for each tile, and reading it is what takes the time.
//
// A thread block multiplies 128 rows of an expert's weights (one row of scale atoms) with the tokens
// of a tile; each of its four warps takes 32 rows. Every thread copies the codes and scales that it
// will use itself into a ring in shared memory, kAhead groups of 128 ahead, so that no barrier stands
// between memory and the matrix instructions. The weights are these instructions' 16-row operand,
// dequantised in registers; the tokens, its 8 columns, lie dequantised in shared memory, in the order
// in which lanes read them. Small thread blocks, many to a multiprocessor, hide what each waits for.
#pragma once

#include "async_copy.cuh"
#include "gemm_sm90_dequantize.cuh"

namespace cukiln {
namespace nvfp4 {

// 16 bytes, past L1; zeros where `bytes` is 0.
__device__ __forceinline__ void copy_16_async(u32 to, const u8* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy_4_async(u32 to, const u8* from, u32 bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// 128 rows of one expert's weights, from row `first` on; rows from `limit` on are not its own.
struct WeightRows {
  const u8* codes;   // of the expert's first row
  const u8* scales;  // of the expert's first atom
  u32 first;
  u32 limit;
};

// Codes and linear block scales, one for 16 columns.
struct TokenMatrix {
  const u8* codes;
  const u8* scales;
};

// kAhead: slots of the ring. kPanel: groups of K whose tokens are in shared memory at a time.
template <u32 kTokens, u32 kAhead, u32 kPanel>
struct SkinnyGemm {
  static constexpr u32 kWarps = 4;
  static constexpr u32 kThreads = 32 * kWarps;
  static constexpr u32 kTokenTiles = kTokens / 8;
  static constexpr u32 kItems = kPanel * kTokenTiles / kWarps;  // of staging, a warp's
  static constexpr u32 kPitch = kAtomRows + 4;                  // of a token's sums in shared memory
  static constexpr u32 kSlot = 5 * kThreads;  // 16 bytes each: a lane's codes of four rows, scales
  static constexpr u32 kTokenVectors = kPanel * kTokenTiles * 4 * 32;  // 16 bytes each
  static constexpr u32 kSharedBytes = (kTokenVectors + kAhead * kSlot) * 16;
  static_assert(kWarps % kTokenTiles == 0, "a warp stages one tile of tokens");
  static_assert(kItems * kWarps == kPanel * kTokenTiles, "and as much as every other");
  static_assert(kTokens * kPitch * 4 <= kSharedBytes, "the sums fit where tokens and weights were");

  // Leaves the sums over groups [begin, end) of K as sums[token * kPitch + row], without the global
  // scales, times 2^-28, and every thread behind a barrier. `row_of(i)` is token i's row of `tokens`.
  template <class RowOf>
  static __device__ __forceinline__ void run(uint4* shared, const WeightRows& rows,
                                             const TokenMatrix& tokens, u32 count, RowOf row_of,
                                             u32 columns, u32 begin, u32 end) {
    const u32 lane = threadIdx.x & 31;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 warp = threadIdx.x >> 5;
    const u32 lane_row = warp * 8 + g;  // and 32, 64, 96 more
    const u32 row_bytes = columns / 2;
    const u32 k_atoms = scale_atoms(columns);
    const bool aligned = rows.first % kAtomRows == 0;
    uint4* const ring = shared + kTokenVectors + threadIdx.x;
    const u32 ring_address = shared_address(ring);

    // Rows beyond the limit are not stored: any row will do.
    const u32 rows_left = rows.limit - min(rows.first + lane_row, rows.limit - 1);
    const u8* const lane_codes =
        rows.codes + static_cast<u64>(rows.limit - rows_left) * row_bytes + t * kLaneBytes;
    const u8* const lane_atoms =
        rows.scales + (static_cast<u64>(rows.first / kAtomRows) * k_atoms + t / 2) * kAtomBytes +
        lane_row * 16;

    const auto copy = [&](u32 group, u32 slot) {
      if (group < end) {
        const u32 bytes = group * kGroupK + t * kLaneK < columns ? 16 : 0;
        const u32 to = ring_address + slot * kSlot * 16;
        const u32 offset = group * 2 * kAtomBytes;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          copy_16_async(to + i * kThreads * 16,
                        lane_codes + ((32 * i < rows_left ? 32 * i : 0) * row_bytes +
                                      group * (kGroupK / 2)),
                        bytes);
        }
        if (aligned) {
          copy_16_async(to + 4 * kThreads * 16, lane_atoms + offset, bytes);
        } else {  // the up half of an odd width begins inside an atom
          for (u32 i = 0; i < 4; ++i) {
            const u32 row = min(rows.first + lane_row + 32 * i, rows.limit - 1);
            copy_4_async(to + 4 * kThreads * 16 + i * 4,
                         rows.scales + (row / kAtomRows * k_atoms + t / 2) * kAtomBytes +
                             CUKILN_SCALE_ROW_OFFSET(row) + offset,
                         bytes / 4);
          }
        }
      }
      commit_copies();
    };

#pragma unroll
    for (u32 i = 0; i + 1 < kAhead; ++i) copy(begin + i, i);

    // A warp stages the tokens of one tile. Tokens beyond `count` are left as they are: a column of
    // the product depends on that token alone.
    const u32 token = warp % kTokenTiles * 8 + g;
    const u64 token_block = token < count
                                ? static_cast<u64>(row_of(token)) * (columns / 16) + t * 2
                                : 0;
    uint4 codes[kItems];
    u32 scale_bytes[kItems];
    const auto fetch_tokens = [&](u32 panel) {
#pragma unroll
      for (u32 i = 0; i < kItems; ++i) {
        const u32 group = panel + (warp + i * kWarps) / kTokenTiles;
        codes[i] = {0, 0, 0, 0};
        scale_bytes[i] = 0;
        if (token < count && group < end && group * kGroupK + t * kLaneK < columns) {
          const u64 first = token_block + group * (kGroupK / 16);
          codes[i] = *reinterpret_cast<const uint4*>(tokens.codes + first * 8);
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
          expand(word_of(codes[i], w), pairs);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) pairs[j] = multiply_f16x2(pairs[j], scales[w / 2]);
          to_lane[w * 32] = {pairs[0], pairs[1], pairs[2], pairs[3]};
        }
      }
    };

    float sum[2][kTokenTiles][4] = {};
    const u32 used_tiles = (count + 7) / 8;
    const u32 selector = lane_scale_selector(t);
    const auto multiply = [&](u32 index, u32 slot) {
      const uint4* const from_ring = ring + slot * kSlot;
      const uint4* const from_lane = shared + index * kTokenTiles * 4 * 32 + lane;
      const uint4 words = from_ring[4 * kThreads];
      u32 scales[4][2];
      uint4 codes_of_row[4];
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        lane_scales(word_of(words, i), selector, scales[i]);
        codes_of_row[i] = from_ring[i * kThreads];
      }
#pragma unroll
      for (u32 w = 0; w < 4; ++w) {
        u32 operand[2][2][4];  // of two instructions for rows 0 and 32, and of two for 64 and 96
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          u32 pairs[4];
          expand(word_of(codes_of_row[i], w), pairs);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) {
            operand[i / 2][j / 2][j % 2 * 2 + i % 2] = multiply_f16x2(pairs[j], scales[i][w / 2]);
          }
        }
#pragma unroll
        for (u32 tile = 0; tile < kTokenTiles; ++tile) {
          if (tile != 0 && tile >= used_tiles) break;
          const uint4 of_token = from_lane[(tile * 4 + w) * 32];
#pragma unroll
          for (u32 half = 0; half < 2; ++half) {
            multiply_16x8x16(sum[half][tile], operand[half][0], of_token.x, of_token.y);
            multiply_16x8x16(sum[half][tile], operand[half][1], of_token.z, of_token.w);
          }
        }
      }
    };

    u32 slot = 0;
    fetch_tokens(begin);
    for (u32 panel = begin; panel < end; panel += kPanel) {
      const u32 panel_end = min(panel + kPanel, end);
      if (panel != begin) __syncthreads();
      stage_tokens();
      __syncthreads();
      if (panel_end < end) fetch_tokens(panel_end);
      for (u32 group = panel; group < panel_end; ++group) {
        copy(group + kAhead - 1, slot == 0 ? kAhead - 1 : slot - 1);
        wait_for_copies<kAhead - 1>();
        multiply(group - panel, slot);
        slot = slot + 1 == kAhead ? 0 : slot + 1;
      }
    }

    wait_for_copies<0>();
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
