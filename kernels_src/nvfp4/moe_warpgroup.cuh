// The grouped GEMM of a mixture of experts with wgmma, for tiles of many tokens (sm_90a).
//
// Persistent and warp-specialised, as gemm_sm90_prefill.cuh: a thread block computes tiles of tokens by 128
// rows of an expert's weights, or 256 with small tiles. A producer thread fills a ring of stages of 128 of K:
// tokens as fp16 or bf16, K permuted and swizzled; the weights as two boxes, packed data and scales. Consumer
// warpgroups dequantise 64 rows each into wgmma's register operand and multiply by the tokens in shared
// memory: two by all of a tile's, one batch ahead of the tensor cores (`consume_all`), or four by as many as
// it has, a stage at a time (`consume_used`).
#pragma once

#include "gemm_sm90_prefill.cuh"
#include "moe_tiles.cuh"

namespace cukiln {
namespace nvfp4 {

// The rows of weights of a tile: two boxes of consecutive rows.
struct WeightBoxes {
  u32 row[2];           // first row, in the tensor map of all experts
  const u8* scales[2];  // first atom of the row of atoms with that row
  u32 atom_row[2];      // 0 or 64: where the box begins in that atom
  u32 atom_rows[2];     // rows of atoms that there are, from that one on

  // `scales`: of the expert, which has `rows` rows; `row`: in it.
  __device__ __forceinline__ void set(u32 i, const u8* scales_of_expert, u32 first_of_expert, u32 in_expert,
                                      u32 rows, u32 k_atoms) {
    row[i] = first_of_expert + in_expert;
    scales[i] = scales_of_expert + static_cast<u64>(in_expert / kAtomRows) * k_atoms * kAtomBytes;
    atom_row[i] = in_expert % kAtomRows;
    atom_rows[i] = scale_atom_rows(rows) - in_expert / kAtomRows;
  }
};

// The same value, which the compiler keeps in a register rather than compute it again.
__device__ __forceinline__ u32 kept(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

template <class Operands, u32 kTokens, u32 kStages>
struct WarpgroupGemm {
  static constexpr bool kIsSmall = kTokens <= 64;
  static constexpr u32 kWarpgroups = kIsSmall ? 4 : 2;  // consumers
  static constexpr u32 kConsumerThreads = 128 * kWarpgroups;
  static constexpr u32 kThreads = 128 + kConsumerThreads;
  static constexpr u32 kRows = 64 * kWarpgroups;  // of weights
  static constexpr u32 kBoxRows = kRows / 2;
  static constexpr u32 kBoxTokens = kIsSmall ? 32 : kTokens;  // of a TMA load
  static constexpr u32 kTokenBytes = kTokens * 128;           // of 64 of K
  static constexpr u32 kDataBoxBytes = kBoxRows * 64;
  static constexpr u32 kScaleBytes = 2 * kAtomBytes;                // of a row of atoms
  static constexpr u32 kMaxAtomRows = kBoxRows > 64 ? 2 : 1;        // that a box has rows of
  static constexpr u32 kScaleBoxBytes = kMaxAtomRows * kScaleBytes;
  static constexpr u32 kDataOffset = 2 * kTokenBytes;  // offset in a stage
  static constexpr u32 kScalesOffset = kDataOffset + 2 * kDataBoxBytes;
  static constexpr u32 kStageBytes = kScalesOffset + 2 * kScaleBoxBytes;
  static constexpr u32 kRingBytes = kStages * kStageBytes;

  u32 base;  // of the ring, 1024-byte aligned
  u32 full;  // barriers
  u32 empty;
  u32 groups;
  u32 k_atoms;
  u32 columns;
  PipelineState<kStages> pipe;

  static __device__ __forceinline__ void consumers_sync() { named_barrier_sync<kConsumerThreads>(1); }

  // Initialises the barriers. Called by every thread first. `ring`: kRingBytes, 1024-byte aligned;
  // `barriers`: 16 * kStages bytes.
  __device__ __forceinline__ void init(u32 ring, u32 barriers, u32 k) {
    base = ring;
    full = barriers;
    empty = barriers + 8 * kStages;
    groups = (k + kGroupK - 1) / kGroupK;
    k_atoms = scale_atoms(k);
    columns = k;
    init_ring<kStages>(full, empty, kConsumerThreads);
  }

  // Producer, one thread: loads all stages of one tile.
  __device__ __forceinline__ void produce(const TensorMap* token_map, const TensorMap* weight_map,
                                          u32 first_token, u32 token_count, const WeightBoxes& weights) {
    const u32 boxes = (token_count + kBoxTokens - 1) / kBoxTokens;
    u32 copies[2];  // rows of atoms
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      copies[i] = min(weights.atom_rows[i], (weights.atom_row[i] + kBoxRows + kAtomRows - 1) / kAtomRows);
    }
    for (u32 group = 0; group < groups; ++group, pipe.advance()) {
      const u32 to = base + pipe.index * kStageBytes;
      const u32 barrier = full + 8 * pipe.index;
      const u32 scale_bytes = min(2u, k_atoms - 2 * group) * kAtomBytes;
      mbarrier_wait(empty + 8 * pipe.index, pipe.phase ^ 1);
      mbarrier_arrive_expect(barrier, 2 * (boxes * kBoxTokens * 128 + kDataBoxBytes) +
                                          (copies[0] + copies[1]) * scale_bytes);
#pragma unroll 1
      for (u32 token = 0; token < boxes * kBoxTokens; token += kBoxTokens) {
        const u32 box = to + token * 128;
        tma_load<1>(box, token_map, group * kGroupK, first_token + token, barrier);
        tma_load<1>(box + kTokenBytes, token_map, group * kGroupK + 64, first_token + token, barrier);
      }
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        tma_load<1>(to + kDataOffset + i * kDataBoxBytes, weight_map, group * 64, weights.row[i], barrier);
#pragma unroll
        for (u32 j = 0; j < kMaxAtomRows; ++j) {
          if (j >= copies[i]) break;
          bulk_copy(to + kScalesOffset + i * kScaleBoxBytes + j * kScaleBytes,
                    weights.scales[i] + (static_cast<u64>(j) * k_atoms + 2 * group) * kAtomBytes, scale_bytes,
                    barrier);
        }
      }
    }
  }

  // Consumers release a stage as in PrefillGemm: without a fence, once its MMAs are complete.
  //
  // Multiplies the first kColumns tokens of a tile, which has `used`, by this thread's rows r[0] and
  // r[1] of the kRows. sum[4 * j] and sum[4 * j + 1] are tokens 8 * j + 2 * t and the next for
  // r[0], sum[4 * j + 2] and the one after for r[1].
  template <u32 kColumns>
  __device__ __forceinline__ void consume(float (&sum)[kColumns / 2], const u32 (&r)[2],
                                          const WeightBoxes& weights, u32 used) {
    if constexpr (kIsSmall) {
      consume_used(sum, r, weights, used);
    } else {
      consume_all<kColumns>(sum, r, weights);
    }
  }

 private:
  // Of a row's scales, in a stage.
  static __device__ __forceinline__ u32 scales_offset(u32 row, const WeightBoxes& weights) {
    const u32 in_atoms = (row < kBoxRows ? weights.atom_row[0] : weights.atom_row[1]) + row % kBoxRows;
    return kScalesOffset + row / kBoxRows * kScaleBoxBytes + in_atoms / kAtomRows * kScaleBytes +
           CUKILN_SCALE_ROW_OFFSET_IN_ATOM(in_atoms % kAtomRows);
  }

  template <u32 kColumns>
  __device__ __forceinline__ void consume_all(float (&sum)[kColumns / 2], const u32 (&r)[2],
                                              const WeightBoxes& weights) {
    const u32 lane = threadIdx.x & 31;
    const u32 t = lane & 3;
    const u32 scale_shift = lane_scale_shift(t);
    u32 data_offset[2], scale_offset[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      data_offset[i] = kDataOffset + r[i] * 64 + t * kLaneBytes;
      scale_offset[i] = scales_offset(r[i], weights) + t / 2 * kAtomBytes;
    }
#pragma unroll
    for (u32 j = 0; j < kColumns / 2; ++j) sum[j] = 0.0f;

    u32 operand[2][2][4];  // dequantised weights of two MMAs, double-buffered
    u32 last_stage = 0;
    for (u32 group = 0; group < groups; ++group) {
      const u32 from = base + pipe.index * kStageBytes;
      mbarrier_wait(full + 8 * pipe.index, pipe.phase);
      const u64 tokens = wgmma_descriptor(from);  // addresses are in units of 16 bytes
      uint4 data[2];
      u32 scales[2];
      const bool inside = group * kGroupK + t * kLaneK < columns;  // padding scales may be NaN
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        data[i] = load_shared(from + data_offset[i]);
        scales[i] = Operands::scales(inside ? load_shared_word(from + scale_offset[i]) >> scale_shift : 0);
      }
#pragma unroll
      for (u32 w = 0; w < 4; ++w) {
        u32(&batch)[2][4] = operand[w & 1];
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
          u32 pairs[4];
          Operands::dequantize(word_of(data[i], w), scales[i], w, pairs);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) batch[j / 2][j % 2 * 2 + i] = pairs[j];
        }
        wgmma_fence();
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
          Wgmma<kColumns, Operands>::run(
              sum, batch[half], tokens + (w / 2 * kTokenBytes + (w % 2 * 2 + half) * 32) / 16);
        }
        wgmma_commit();
        wgmma_wait<1>();  // the previous batch is complete, its registers may be overwritten
        if (w == 0 && group != 0) mbarrier_arrive_cta(empty + 8 * last_stage);
      }
      last_stage = pipe.index;
      pipe.advance();
    }
    wgmma_wait<0>();
    mbarrier_arrive_cta(empty + 8 * last_stage);
  }

  // The same by a tile's tokens, `used` of them.
  __device__ __forceinline__ void consume_used(float (&sum)[kTokens / 2], const u32 (&r)[2],
                                               const WeightBoxes& weights, u32 used) {
    const u32 lane = threadIdx.x & 31;
    const u32 t = lane & 3;
    const u32 scale_shift = kept(lane_scale_shift(t));
    const u32 lane_groups = kept((columns + kGroupK - 1 - t * kLaneK) / kGroupK);  // in which it has columns
    u32 data_at[2], scale_at[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      data_at[i] = kept(base + kDataOffset + r[i] * 64 + t * kLaneBytes);
      scale_at[i] = kept(base + scales_offset(r[i], weights) + t / 2 * kAtomBytes);
    }
#pragma unroll
    for (u32 j = 0; j < kTokens / 2; ++j) sum[j] = 0.0f;

    u32 last_stage = 0;
    for (u32 group = 0; group < groups; ++group) {
      const u32 stage = pipe.index * kStageBytes;
      const u64 tokens = wgmma_descriptor(base + stage);  // addresses are in units of 16 bytes
      mbarrier_wait(full + 8 * pipe.index, pipe.phase);
      u32 scales[2];
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        const u32 word = load_shared_word(stage + scale_at[i]);
        scales[i] = Operands::scales(group < lane_groups ? word >> scale_shift : 0);  // padding may be NaN
      }
      wgmma_wait<0>();
      if (group != 0) mbarrier_arrive_cta(empty + 8 * last_stage);
      uint4 data[2];
#pragma unroll
      for (u32 i = 0; i < 2; ++i) data[i] = load_shared(stage + data_at[i]);
      u32 operand[4][2][4];  // dequantised weights of eight MMAs
#pragma unroll
      for (u32 w = 0; w < 4; ++w) {
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
          u32 pairs[4];
          Operands::dequantize(word_of(data[i], w), scales[i], w, pairs);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) operand[w][j / 2][j % 2 * 2 + i] = pairs[j];
        }
      }
      multiply<16>(sum, operand, tokens, used);
      last_stage = pipe.index;
      pipe.advance();
    }
    wgmma_wait<0>();
    mbarrier_arrive_cta(empty + 8 * last_stage);
  }

  // Issues a stage's MMAs, with the least of kColumns, kColumns + 8, ... columns that holds `used`.
  // They are chosen here and not by instances of `consume`: ptxas gives the sums of each instance registers of
  // their own, and has too few for more than two.
  template <u32 kColumns>
  static __device__ __forceinline__ void multiply(float (&sum)[kTokens / 2], const u32 (&operand)[4][2][4],
                                                  u64 tokens, u32 used) {
    if constexpr (kColumns < kTokens) {
      if (used > kColumns) return multiply<kColumns + 8>(sum, operand, tokens, used);
    }
    float(&used_sums)[kColumns / 2] = reinterpret_cast<float(&)[kColumns / 2]>(sum);
    wgmma_fence();
#pragma unroll
    for (u32 w = 0; w < 4; ++w) {
#pragma unroll
      for (u32 half = 0; half < 2; ++half) {
        Wgmma<kColumns, Operands>::run(used_sums, operand[w][half],
                                       tokens + (w / 2 * kTokenBytes + (w % 2 * 2 + half) * 32) / 16);
      }
    }
    wgmma_commit();
  }
};

}  // namespace nvfp4
}  // namespace cukiln
