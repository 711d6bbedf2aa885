// The grouped GEMM of a mixture of experts for tiles of few tokens: each weight is read once for each tile,
// and loading weights is what takes the time.
//
// A thread block multiplies 128 rows of an expert's weights (one row of atoms) by the tokens of a tile;
// each of its four warps takes 32 rows. Every thread loads the data and scales that it will use itself, by
// cp.async into its own slots of a ring in shared memory, kStages - 1 groups of 128 of K ahead, so no
// barrier is between the loads and the MMAs. Weights are mma.sync's 16-row operand, dequantised in
// registers; tokens are its 8 columns, in shared memory in the lanes' order, NVFP4 ones dequantised once.
// Latency is hidden by many small thread blocks on each SM.
#pragma once

#include "alpha.cuh"
#include "gemm_sm90_dequantize.cuh"
#include "machine.cuh"

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

// Tokens in NVFP4: packed data, and linear block scales, one byte for 16 columns.
struct Nvfp4Tokens {
  using Operands = F16;

  struct Matrix {
    const u8* data;
    const u8* scales;
    const float* global_scale;
    const float* row_decode;  // of each row, where global_scale is null
  };

  static __device__ __forceinline__ Nvfp4Alpha alpha(const Matrix& tokens, float weight_decode) {
    return Nvfp4Alpha(tokens.global_scale, weight_decode);
  }
  static __device__ __forceinline__ Nvfp4Alpha alpha_of_row(const Nvfp4Alpha& alpha, const Matrix& tokens,
                                                            u32 row) {
    return alpha.of_row(tokens.row_decode, row);
  }

  // A lane's 32 elements of a group, in registers.
  struct LaneTokens {
    uint4 data = {0, 0, 0, 0};
    u32 scale_bytes = 0;

    // `block`: the first of the two blocks of 16.
    __device__ __forceinline__ void load(const Matrix& from, u64 block) {
      data = *reinterpret_cast<const uint4*>(from.data + block * 8);
      scale_bytes = *reinterpret_cast<const u16*>(from.scales + block);
    }

    __device__ __forceinline__ void store(uint4* to_lane) const {
      const u32 scales = Operands::scales(scale_bytes);
#pragma unroll
      for (u32 w = 0; w < 4; ++w) {
        u32 pairs[4];
        Operands::dequantize(word_of(data, w), scales, w, pairs);
        to_lane[w * 32] = {pairs[0], pairs[1], pairs[2], pairs[3]};
      }
    }
  };
};

// Tokens in bf16, multiplied as they are.
struct Bf16Tokens {
  using Operands = Bf16;

  struct Matrix {
    const bf16* values;
  };

  static __device__ __forceinline__ Bf16Alpha alpha(const Matrix&, float weight_decode) {
    return Bf16Alpha(weight_decode);
  }
  static __device__ __forceinline__ Bf16Alpha alpha_of_row(const Bf16Alpha& alpha, const Matrix&, u32) {
    return alpha;
  }

  struct LaneTokens {
    uint4 values[4] = {};

    __device__ __forceinline__ void load(const Matrix& from, u64 block) {
      const uint4* const first = reinterpret_cast<const uint4*>(from.values + block * kBlockColumns);
#pragma unroll
      for (u32 w = 0; w < 4; ++w) values[w] = first[w];
    }

    __device__ __forceinline__ void store(uint4* to_lane) const {
#pragma unroll
      for (u32 w = 0; w < 4; ++w) {
        u32 pairs[4];
        Operands::arrange(values[w], pairs);
        to_lane[w * 32] = {pairs[0], pairs[1], pairs[2], pairs[3]};
      }
    }
  };
};

// kStages: slots of the ring. kPanel: groups of 128 of K whose tokens are in shared memory at a time.
template <class Tokens, u32 kTokens, u32 kStages, u32 kPanel>
struct SkinnyGemm {
  using TokenFormat = Tokens;
  using Operands = typename Tokens::Operands;
  using TokenMatrix = typename Tokens::Matrix;
  static constexpr u32 kWarps = 4;
  static constexpr u32 kThreads = 32 * kWarps;
  static constexpr u32 kTokenTiles = kTokens / 8;
  static constexpr u32 kItems = kPanel * kTokenTiles / kWarps;  // token tiles of a panel, for each warp
  static constexpr u32 kPitch = kAtomRows + 4;                  // floats of a token's sums in shared memory
  // Vectors of 16 bytes. A stage has five of each thread: the data of its four rows, and their scales.
  static constexpr u32 kStageVectors = 5 * kThreads;
  static constexpr u32 kTokenVectors = kPanel * kTokenTiles * 4 * 32;
  static constexpr u32 kSharedBytes = (kTokenVectors + kStages * kStageVectors) * 16;
  static_assert(kWarps % kTokenTiles == 0, "a warp stages one tile of tokens");
  static_assert(kItems * kWarps == kPanel * kTokenTiles, "and all warps stage equally many");
  static_assert(kTokens * kPitch * 4 <= kSharedBytes, "the sums fit where tokens and weights were");

  // Computes sums[token * kPitch + row] in `shared` over groups [begin, end) of K, without what Tokens::alpha
  // multiplies by. Ends with a barrier. `row_of(i)` is the row in `tokens` of token i of the tile.
  template <class RowOf>
  static __device__ __forceinline__ void run(uint4* shared, const WeightRows& rows,
                                             const TokenMatrix& tokens, u32 count, RowOf row_of,
                                             u32 columns, u32 begin, u32 end) {
    uint4* const ring = shared + kTokenVectors + threadIdx.x;  // the thread's own vectors
    const WeightLoader weights(rows, columns, end, shared_address(ring));
#pragma unroll
    for (u32 i = 0; i + 1 < kStages; ++i) weights.load(begin + i, i);

    TokenStager stager(tokens, count, row_of, columns, end);
    Sums sum = {};
    const u32 used_tiles = (count + 7) / 8;
    u32 stage = 0;
    stager.fetch(begin);
    for (u32 panel = begin; panel < end; panel += kPanel) {
      const u32 panel_end = min(panel + kPanel, end);
      if (panel != begin) __syncthreads();
      stager.stage(shared);
      __syncthreads();
      if (panel_end < end) stager.fetch(panel_end);
      for (u32 group = panel; group < panel_end; ++group) {
        weights.load(group + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
        cp_async_wait<kStages - 1>();
        run_mma(sum, shared + (group - panel) * kTokenTiles * 4 * 32, ring + stage * kStageVectors,
                used_tiles);
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
    }
    cp_async_wait<0>();
    __syncthreads();
    store_sums(reinterpret_cast<float*>(shared), sum);
    __syncthreads();
  }

 private:
  using Sums = float[2][kTokenTiles][4];  // rows 0 and 32 further, then 64 and 96; tokens in tiles of 8

  // The first of the thread's four rows; the others are 32, 64 and 96 further.
  static __device__ __forceinline__ u32 lane_row() {
    return (threadIdx.x >> 5) * 8 + ((threadIdx.x & 31) >> 2);
  }

  // Loads the thread's own weights, by cp.async, group by group of K. The copies are of the generic proxy, and
  // no other thread uses the slots: a slot is refilled after the MMAs that the loads from it fed.
  struct WeightLoader {
    const WeightRows& rows;
    u32 columns;
    u32 end;  // of the groups
    u32 ring;  // address of the thread's first vector in the ring
    u32 t;
    u32 row;
    u32 row_bytes;
    u32 k_atoms;
    bool aligned;
    u32 rows_left;
    const u8* lane_data;
    const u8* lane_atoms;

    __device__ __forceinline__ WeightLoader(const WeightRows& of, u32 k, u32 end_group, u32 ring_address)
        : rows(of),
          columns(k),
          end(end_group),
          ring(ring_address),
          t(threadIdx.x & 3),
          row(lane_row()),
          row_bytes(k / 2),
          k_atoms(scale_atoms(k)),
          aligned(of.first % kAtomRows == 0),
          // Rows beyond the limit are not stored: any row may be loaded for them, and the scales of any atom. Where all
          // rows are beyond it, the atom of the first is no atom of the expert's.
          rows_left(of.limit - min(of.first + row, of.limit - 1)),
          lane_data(of.data + static_cast<u64>(of.limit - rows_left) * row_bytes + t * kLaneBytes),
          lane_atoms(of.scales +
                     (static_cast<u64>(min(of.first, of.limit - 1) / kAtomRows) * k_atoms + t / 2) * kAtomBytes +
                     row * 16) {}

    // Loads a group to a slot of the ring. Commits a group of copies even if there is nothing to load.
    __device__ __forceinline__ void load(u32 group, u32 stage) const {
      if (group < end) {
        const u32 bytes = group * kGroupK + t * kLaneK < columns ? 16 : 0;
        const u32 to = ring + stage * kStageVectors * 16;
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
            const u32 of_four = min(rows.first + row + 32 * i, rows.limit - 1);
            cp_async_4(to + 4 * kThreads * 16 + i * 4,
                       rows.scales + (of_four / kAtomRows * k_atoms + t / 2) * kAtomBytes +
                           CUKILN_SCALE_ROW_OFFSET(of_four) + offset,
                       bytes / 4);
          }
        }
      }
      cp_async_commit();
    }
  };

  // Loads a panel's tokens into registers, a warp those of one token tile, and stores them as operands in
  // shared memory. Tokens beyond `count` keep old values: a column of the result depends on its own token only.
  struct TokenStager {
    const TokenMatrix& tokens;
    u32 columns;
    u32 end;
    u32 t;
    u32 warp;
    bool has_token;
    u64 first_block;  // of the token, in blocks of 16 columns
    typename Tokens::LaneTokens lane_tokens[kItems];

    template <class RowOf>
    __device__ __forceinline__ TokenStager(const TokenMatrix& of, u32 count, RowOf row_of, u32 k,
                                           u32 end_group)
        : tokens(of), columns(k), end(end_group), t(threadIdx.x & 3), warp(threadIdx.x >> 5) {
      const u32 token = warp % kTokenTiles * 8 + ((threadIdx.x & 31) >> 2);
      has_token = token < count;
      first_block = has_token ? static_cast<u64>(row_of(token)) * (columns / 16) + t * 2 : 0;
    }

    __device__ __forceinline__ void fetch(u32 panel) {
#pragma unroll
      for (u32 i = 0; i < kItems; ++i) {
        const u32 group = panel + (warp + i * kWarps) / kTokenTiles;
        lane_tokens[i] = {};
        if (has_token && group < end && group * kGroupK + t * kLaneK < columns) {
          lane_tokens[i].load(tokens, first_block + group * (kGroupK / 16));
        }
      }
    }

    __device__ __forceinline__ void stage(uint4* shared) const {
#pragma unroll
      for (u32 i = 0; i < kItems; ++i) {
        if (!has_token) continue;
        lane_tokens[i].store(shared + (warp + i * kWarps) * 4 * 32 + (threadIdx.x & 31));
      }
    }
  };

  // Multiplies the thread's weights of one group by the tokens of that group in shared memory.
  static __device__ __forceinline__ void run_mma(Sums& sum, const uint4* tokens, const uint4* weights,
                                                 u32 used_tiles) {
    const u32 lane = threadIdx.x & 31;
    const u32 scale_shift = lane_scale_shift(lane & 3);
    const uint4* const lane_tokens = tokens + lane;
    const uint4 words = weights[4 * kThreads];
    u32 scales[4];
    uint4 data[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      scales[i] = Operands::scales(word_of(words, i) >> scale_shift);
      data[i] = weights[i * kThreads];
    }
#pragma unroll
    for (u32 w = 0; w < 4; ++w) {
      u32 operand[2][2][4];  // of two MMAs for rows 0 and 32, and two for 64 and 96
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        u32 pairs[4];
        Operands::dequantize(word_of(data[i], w), scales[i], w, pairs);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) operand[i / 2][j / 2][j % 2 * 2 + i % 2] = pairs[j];
      }
#pragma unroll
      for (u32 tile = 0; tile < kTokenTiles; ++tile) {
        if (tile != 0 && tile >= used_tiles) break;
        const uint4 token = lane_tokens[(tile * 4 + w) * 32];
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
          Operands::mma(sum[half][tile], operand[half][0], token.x, token.y);
          Operands::mma(sum[half][tile], operand[half][1], token.z, token.w);
        }
      }
    }
  }

  static __device__ __forceinline__ void store_sums(float* sums, const Sums& sum) {
    const u32 t = threadIdx.x & 3;
    const u32 row = lane_row();
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
#pragma unroll
      for (u32 tile = 0; tile < kTokenTiles; ++tile) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          sums[(tile * 8 + t * 2 + i % 2) * kPitch + row + 32 * (2 * half + i / 2)] = sum[half][tile][i];
        }
      }
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
