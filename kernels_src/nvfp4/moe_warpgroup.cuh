// The grouped matrix product of a mixture of experts with Hopper's warpgroup matrix instructions, by
// tiles of many tokens.
//
// A persistent thread block makes one tile of tokens by 128 rows of an expert's weights after the
// other. One warp keeps a ring of stages full, each 128 of K: the tokens, as fp16 in the lanes' order
// and as the copy engine swizzles them; and the weights as they are, two boxes of 64 rows, codes and
// scales. Two warpgroups dequantise 64 rows each into the matrix instruction's register operand, one
// batch ahead of the tensor cores, which take the tokens from shared memory as its columns.
#pragma once

#include "gemm_sm90_prefill.cuh"
#include "moe_tiles.cuh"

namespace cukiln {
namespace nvfp4 {

// 128 rows of weights: two runs of 64.
struct WeightBoxes {
  u32 row[2];           // of the first in the map of all experts' codes
  const u8* scales[2];  // of the atom that has the 64 rows
  u32 atom_row[2];      // 0 or 64: where they begin in it
};

template <u32 kTokens, u32 kStages>
struct WarpgroupGemm {
  static constexpr u32 kThreads = 384;
  static constexpr u32 kMultiplying = 256;
  static constexpr u32 kTokenBox = kTokens * 128;  // bytes of 64 of K
  static constexpr u32 kCodeBox = 64 * 64;         // bytes of 64 rows
  static constexpr u32 kScaleBox = 2 * kAtomBytes;
  static constexpr u32 kCodes = 2 * kTokenBox;  // where they begin in a stage
  static constexpr u32 kScales = kCodes + 2 * kCodeBox;
  static constexpr u32 kStageBytes = kScales + 2 * kScaleBox;
  static constexpr u32 kRingBytes = kStages * kStageBytes;

  u32 base;  // of the ring, on 1024 bytes
  u32 full;  // barriers
  u32 empty;
  u32 groups;
  u32 k_atoms;
  u32 columns;
  u32 stage = 0;
  u32 parity = 0;

  // By every thread, before anything else. `shared` has kRingBytes, rounded up to 1024, and barriers.
  __device__ __forceinline__ void begin(u32 ring, u32 barriers, u32 k) {
    base = ring;
    full = barriers;
    empty = barriers + 8 * kStages;
    groups = (k + kGroupK - 1) / kGroupK;
    k_atoms = scale_atoms(k);
    columns = k;
    if (threadIdx.x == 0) {
      for (u32 i = 0; i < kStages; ++i) {
        mbarrier_init(full + 8 * i, 1);
        mbarrier_init(empty + 8 * i, kMultiplying);
      }
      mbarrier_init_fence();
    }
    __syncthreads();
  }

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }

  // By one thread: everything that one tile needs.
  __device__ __forceinline__ void copy(const TensorMap* token_map, const TensorMap* code_map,
                                       u32 first_token, const WeightBoxes& weights) {
    for (u32 group = 0; group < groups; ++group) {
      const u32 to = base + stage * kStageBytes;
      const u32 barrier = full + 8 * stage;
      const u32 scale_bytes = min(2u, k_atoms - 2 * group) * kAtomBytes;
      mbarrier_wait(empty + 8 * stage, parity ^ 1);
      mbarrier_arrive_expect(barrier, kScales + 2 * scale_bytes);
      load_tile<1>(to, token_map, group * kGroupK, first_token, barrier);
      load_tile<1>(to + kTokenBox, token_map, group * kGroupK + 64, first_token, barrier);
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        load_tile<1>(to + kCodes + i * kCodeBox, code_map, group * 64, weights.row[i], barrier);
        copy_bytes(to + kScales + i * kScaleBox, weights.scales[i] + group * kScaleBox, scale_bytes,
                   barrier);
      }
      advance();
    }
  }

  // By the 256 multiplying threads: the first kColumns tokens of a tile times a thread's rows r[0]
  // and r[1] of the 128. `sum` has tokens 8 * j + 2 * t and the next at 4 * j, for r[0], and 4 * j + 2,
  // for r[1].
  template <u32 kColumns>
  __device__ __forceinline__ void multiply(float (&sum)[kColumns / 2], const u32 (&r)[2],
                                           const WeightBoxes& weights) {
    const u32 lane = threadIdx.x & 31;
    const u32 t = lane & 3;
    const u32 selector = lane_scale_selector(t);
    u32 code_offset[2], scale_offset[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const u32 row = (r[i] < 64 ? weights.atom_row[0] : weights.atom_row[1]) + r[i] % 64;
      code_offset[i] = kCodes + r[i] * 64 + t * kLaneBytes;
      scale_offset[i] = kScales + r[i] / 64 * kScaleBox + t / 2 * kAtomBytes +
                        CUKILN_SCALE_ROW_OFFSET(row);
    }
#pragma unroll
    for (u32 j = 0; j < kColumns / 2; ++j) sum[j] = 0.0f;

    u32 operand[2][2][4];  // dequantised weights: two instructions' worth, twice
    u32 last_stage = 0;
    for (u32 group = 0; group < groups; ++group) {
      const u32 from = base + stage * kStageBytes;
      mbarrier_wait(full + 8 * stage, parity);
      uint4 codes[2];
      u32 scales[2][2];
      const bool inside = group * kGroupK + t * kLaneK < columns;  // padding scales may be NaN
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        codes[i] = load_shared(from + code_offset[i]);
        lane_scales(inside ? load_shared_word(from + scale_offset[i]) : 0, selector, scales[i]);
      }
#pragma unroll
      for (u32 w = 0; w < 4; ++w) {
        u32(&now)[2][4] = operand[w & 1];
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
          u32 pairs[4];
          expand(word_of(codes[i], w), pairs);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) {
            now[j / 2][j % 2 * 2 + i] = multiply_f16x2(pairs[j], scales[i][w / 2]);
          }
        }
        tensor_fence();
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
          TensorMultiply<kColumns>::run(
              sum, now[half], tile_descriptor(from + w / 2 * kTokenBox + (w % 2 * 2 + half) * 32));
        }
        tensor_commit();
        tensor_wait<1>();  // the batch before: its registers are free
        if (w == 0 && group != 0) mbarrier_arrive_here(empty + 8 * last_stage);
      }
      last_stage = stage;
      advance();
    }
    tensor_wait<0>();
    mbarrier_arrive_here(empty + 8 * last_stage);
  }
};

}  // namespace nvfp4
}  // namespace cukiln
