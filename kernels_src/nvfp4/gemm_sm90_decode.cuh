// A few tokens: every weight is read once, and reading and dequantising it is all that takes time.
//
// The weights are the matrix instruction's 16 rows and the tokens its 8 columns. A thread block takes
// 8 * kUnits rows of B and all of K, so that nothing is shared between blocks; its warps take groups
// of 128 of K in turn, each for all rows, and meet once, at the end, to add their sums in a fixed
// order. A warp is its own producer: one lane has the copy engine fetch codes and scales two groups
// ahead. What remains is dequantisation, which integer and half-precision instructions, at half rate,
// make as expensive as the memory.
#pragma once

#include "async_copy.cuh"
#include "gemm_sm90_dequantize.cuh"

namespace cukiln {
namespace nvfp4 {

// kTokens: 8 or 16.
template <u32 kTokens, u32 kUnits, u32 kWarps, u32 kStages = 2>
struct DecodeGemm {
  static constexpr u32 kThreads = 32 * kWarps;
  static constexpr u32 kRows = 8 * kUnits;
  static constexpr u32 kPitch = kRows + 4;  // floats of a token's sums: no bank conflicts
  static constexpr u32 kTiles = kTokens / 8;
  static constexpr u32 kPairs = (kUnits + 1) / 2;
  // A stage: codes of the rows and tokens, 64 bytes each, then whole atoms of the rows' scales (they
  // may lie in two rows of atoms) and the tokens' 16 bytes of each atom.
  static constexpr u32 kGroupBytes = 64;
  static constexpr u32 kCodeBytes = kRows * kGroupBytes;
  static constexpr u32 kTokenBytes = kTokens * kGroupBytes;
  static constexpr u32 kTokenScaleBytes = kTokens * 16;  // of one atom
  static constexpr u32 kTokensAt = kCodeBytes;
  static constexpr u32 kScalesAt = kTokensAt + kTokenBytes;
  static constexpr u32 kTokenScalesAt = kScalesAt + 4 * kAtomBytes;
  static constexpr u32 kStageBytes = kTokenScalesAt + 2 * kTokenScaleBytes;
  static constexpr u32 kWarpBytes = kStages * kStageBytes;
  static constexpr u32 kSharedBytes = kWarps * (kWarpBytes + 8 * kStages) + 128;
  static_assert(kTokens * kPitch * 4 <= kWarpBytes, "a warp's sums lie where its stages did");
  static_assert(kStageBytes % 128 == 0 && kRows <= kAtomRows, "the copy engine's alignment");

  // A lane's part of 8 rows and 128 of K, dequantised a word at a time.
  struct Piece {
    uint4 codes;
    u32 scales[2];
    __device__ __forceinline__ Piece(const u8* lane_codes, const u8* scale_word, u32 selector,
                                     bool inside) {
      codes = *reinterpret_cast<const uint4*>(lane_codes);
      const u32 word = *reinterpret_cast<const u32*>(scale_word);
      lane_scales(inside ? word : 0, selector, scales);  // padding scales may be NaN
    }
    __device__ __forceinline__ void word(u32 w, u32 (&pairs)[4]) const {
      expand(word_of(codes, w), pairs);
#pragma unroll
      for (u32 j = 0; j < 4; ++j) pairs[j] = multiply_f16x2(pairs[j], scales[w / 2]);
    }
  };

  static __device__ __forceinline__ void run(u16* output, const TensorMap* token_map,
                                             const TensorMap* code_map, const u8* token_scales,
                                             const u8* row_scales, const float* gsa_a,
                                             const float* gsa_b, const u16* bias, u32 tokens,
                                             u32 rows, u32 columns) {
    extern __shared__ uint4 shared[];
    const u32 lane = threadIdx.x & 31;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x >> 5, 0);  // uniform, for the compiler too
    const u32 first_row = blockIdx.x * kRows;
    const u32 first_token = blockIdx.y * kTokens;
    const u32 k_atoms = (columns + 63) / 64;
    const u32 groups = (columns + kGroupK - 1) / kGroupK;
    const u32 row_atoms = (rows + kAtomRows - 1) / kAtomRows;
    const u32 first_atom = first_row / kAtomRows;

    u8* const base = reinterpret_cast<u8*>(shared) + (-shared_address(shared) & 127);
    u8* const ring = base + warp * kWarpBytes;
    const u32 ring_address = shared_address(ring);
    const u32 barriers = shared_address(base) + kWarps * kWarpBytes + warp * 8 * kStages;
    const bool second_atom =
        first_row % kAtomRows + kRows > kAtomRows && first_atom + 1 < row_atoms;

    // One lane: group `group` into stage `stage`, weights first.
    const auto load_rows = [&](u32 group, u32 stage) {
      const u32 to = ring_address + stage * kStageBytes;
      const u32 barrier = barriers + 8 * stage;
      const u32 atoms = min(2u, k_atoms - 2 * group);
      const u64 atom = static_cast<u64>(first_atom) * k_atoms + 2 * group;
      mbarrier_arrive_expect(barrier, kCodeBytes + kTokenBytes +
                                  atoms * ((second_atom ? 2 : 1) * kAtomBytes + kTokenScaleBytes));
      load_tile<1>(to, code_map, group * kGroupBytes, first_row, barrier);
      copy_bytes(to + kScalesAt, row_scales + atom * kAtomBytes, atoms * kAtomBytes, barrier);
      if (second_atom) {
        copy_bytes(to + kScalesAt + 2 * kAtomBytes, row_scales + (atom + k_atoms) * kAtomBytes,
                   atoms * kAtomBytes, barrier);
      }
    };
    const auto load_tokens = [&](u32 group, u32 stage) {
      const u32 to = ring_address + stage * kStageBytes;
      const u32 barrier = barriers + 8 * stage;
      const u32 atoms = min(2u, k_atoms - 2 * group);
      const u64 atom = static_cast<u64>(first_token / kAtomRows) * k_atoms + 2 * group;
      load_tile<1>(to + kTokensAt, token_map, group * kGroupBytes, first_token, barrier);
      for (u32 i = 0; i < atoms; ++i) {
        copy_bytes(to + kTokenScalesAt + i * kTokenScaleBytes,
                   token_scales + (atom + i) * kAtomBytes + first_token % 32 * 16, kTokenScaleBytes,
                   barrier);
      }
    };
    // Launched early (programmatically), this kernel fetches weights while the one before it ends.
    if (elect_one()) {
#pragma unroll
      for (u32 i = 0; i < kStages; ++i) mbarrier_init(barriers + 8 * i, 1);
      mbarrier_init_fence();
#pragma unroll
      for (u32 i = 0; i < kStages; ++i) {
        if (warp + i * kWarps < groups) load_rows(warp + i * kWarps, i);
      }
    }
    wait_for_previous_kernel();
    allow_next_kernel();
    if (elect_one()) {
#pragma unroll
      for (u32 i = 0; i < kStages; ++i) {
        if (warp + i * kWarps < groups) load_tokens(warp + i * kWarps, i);
      }
    }
    __syncwarp();

    const float alpha_a = __ldg(gsa_a + 1) * kTwoTo14;
    const float alpha_b = __ldg(gsa_b + 1) * kTwoTo14;
    const u32 selector = lane_scale_selector(t);
    u32 scale_at[kUnits];
#pragma unroll
    for (u32 u = 0; u < kUnits; ++u) {
      const u32 row = first_row % kAtomRows + u * 8 + g;
      scale_at[u] = kScalesAt + row / kAtomRows * 2 * kAtomBytes + t / 2 * kAtomBytes + row % 32 * 16 +
                    row / 32 % 4 * 4;
    }
    const u32 token_scale_at =
        kTokenScalesAt + t / 2 * kTokenScaleBytes + g * 16 + first_token / 32 % 4 * 4;
    const u32 lane_at = g * kGroupBytes + t * kLaneBytes;

    float sum[kPairs][kTiles][4] = {};
    u32 stage = 0;
    u32 parity = 0;
    for (u32 group = warp; group < groups; group += kWarps) {
      mbarrier_wait(barriers + 8 * stage, parity);
      const u8* const from = ring + stage * kStageBytes;
      const u8* const lane_from = from + lane_at;
      const bool inside = group * kGroupK + t * kLaneK < columns;
      u32 operand[kTiles][4][4];  // the tokens of this group, two instructions a word
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
        const Piece token(lane_from + kTokensAt + i * 8 * kGroupBytes, from + token_scale_at + i * 128,
                          selector, inside);
#pragma unroll
        for (u32 w = 0; w < 4; ++w) token.word(w, operand[i][w]);
      }
#pragma unroll
      for (u32 p = 0; p < kPairs; ++p) {
        const bool whole = 2 * p + 1 < kUnits;  // of an odd number of units, the last is alone
        const u32 second = 2 * p + (whole ? 1 : 0);
        const Piece low(lane_from + 2 * p * 8 * kGroupBytes, from + scale_at[2 * p], selector, inside);
        const Piece high(lane_from + second * 8 * kGroupBytes, from + scale_at[second], selector, inside);
#pragma unroll
        for (u32 w = 0; w < 4; ++w) {
          u32 x[4];
          u32 y[4] = {0, 0, 0, 0};
          low.word(w, x);
          if (whole) high.word(w, y);
#pragma unroll
          for (u32 i = 0; i < kTiles; ++i) {
            multiply_16x8x16(sum[p][i], {x[0], y[0], x[1], y[1]}, operand[i][w][0], operand[i][w][1]);
            multiply_16x8x16(sum[p][i], {x[2], y[2], x[3], y[3]}, operand[i][w][2], operand[i][w][3]);
          }
        }
      }
      __syncwarp();  // all lanes have read the stage
      if (group + kStages * kWarps < groups && elect_one()) {
        load_rows(group + kStages * kWarps, stage);
        load_tokens(group + kStages * kWarps, stage);
      }
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }

    float* const partial = reinterpret_cast<float*>(base);
    float* const own = reinterpret_cast<float*>(ring);
#pragma unroll
    for (u32 p = 0; p < kPairs; ++p) {
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
        for (u32 c = 0; c < 4; ++c) {
          if (2 * p + c / 2 < kUnits) {
            own[(i * 8 + t * 2 + c % 2) * kPitch + (2 * p + c / 2) * 8 + g] = sum[p][i][c];
          }
        }
      }
    }
    __syncthreads();
    // Two rows of one token a thread.
    for (u32 i = threadIdx.x; i < kTokens * kRows / 2; i += kThreads) {
      const u32 token = first_token + i / (kRows / 2);
      const u32 row = first_row + i % (kRows / 2) * 2;
      if (token >= tokens || row >= rows) continue;
      const float2* const from = reinterpret_cast<const float2*>(
          partial + i / (kRows / 2) * kPitch + i % (kRows / 2) * 2);
      float2 total = *from;
#pragma unroll
      for (u32 w = 1; w < kWarps; ++w) {
        const float2 more = from[w * kWarpBytes / 8];
        total.x += more.x;
        total.y += more.y;
      }
      total.x = total.x * alpha_a * alpha_b;
      total.y = total.y * alpha_a * alpha_b;
      if (bias != nullptr) {
        const u32 add = __ldg(reinterpret_cast<const u32*>(bias + row));
        total.x += __uint_as_float(add << 16);
        total.y += __uint_as_float(add & 0xFFFF0000u);
      }
      *reinterpret_cast<u32*>(output + static_cast<u64>(token) * rows + row) =
          pack_bf16x2(total.x, total.y);
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
