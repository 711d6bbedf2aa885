// A few tokens: every weight is read once, and reading and dequantising it is all that takes time.
//
// A thread block takes 8 * kUnits rows of B and all of K, so that nothing is shared between blocks.
// One warp has the copy engine bring codes and scales, a stage of 512 of K at a time, into a ring; of
// the others, four share a stage and take 128 of its K each, for all rows. They meet once, at the
// end, to add their sums in a fixed order. Tokens, which all blocks read, come from the cache into
// registers, a stage ahead: behind the weights in the copy engine's queue they would be late. The
// first are late as well, by a microsecond, where a whole ring of weights was asked for before them:
// they are asked for once the kernel before has ended, so weights go slowly until then. What remains is
// dequantisation, which integer and half-precision instructions make as expensive as the memory.
#pragma once

#include "async_copy.cuh"
#include "gemm_sm90_dequantize.cuh"

namespace cukiln {
namespace nvfp4 {

// Hides where a value comes from: the compiler would compute it anew in every turn of a loop.
__device__ __forceinline__ void keep(u32& value) { asm("" : "+r"(value)); }

// kTokens: 8, or a multiple of 16. kResident: blocks that share a multiprocessor.
template <u32 kTokens, u32 kUnits, u32 kResident, u32 kStages = 4, u32 kTeams = 2>
struct DecodeGemm {
  static constexpr u32 kTeamWarps = 4;  // that share a stage
  static constexpr u32 kWarps = kTeams * kTeamWarps;
  // More than 16 tokens need more than an even share of the registers: a warpgroup copies then, and
  // gives most of its own away.
  static constexpr bool kSharesRegisters = kTokens > 16;
  static constexpr u32 kThreads = 32 * (kWarps + (kSharesRegisters ? 4 : 1));
  static constexpr u32 kRows = 8 * kUnits;
  static constexpr u32 kPitch = kRows + 4;  // floats of a token's sums: no bank conflicts
  static constexpr u32 kTiles = kTokens / 8;
  // Sixteen tokens are the instruction's rows and eight weight rows its columns; eight tokens are its
  // columns and sixteen weight rows its rows.
  static constexpr bool kTokensAreRows = kTokens != 8;
  static constexpr u32 kUnitsAtOnce = kTokensAreRows ? 1 : 2;
  static constexpr u32 kProducts = kTokensAreRows ? kTokens / 16 : 1;  // of a weight, once it is there
  static constexpr u32 kSums = (kUnits + kUnitsAtOnce - 1) / kUnitsAtOnce;
  // A stage: two boxes of 256 codes of each row, swizzled, then whole atoms of the rows' scales,
  // which may lie in two rows of atoms.
  static constexpr u32 kStageK = kTeamWarps * kGroupK;
  static constexpr u32 kBoxBytes = 128;  // of a row
  static constexpr u32 kStageAtoms = kStageK / 64;
  static constexpr u32 kRowAtoms = kAtomRows % kRows == 0 ? 1 : 2;
  static constexpr u32 kScalesAt = 2 * kRows * kBoxBytes;
  static constexpr u32 kScaleBytes = kStageAtoms * kAtomBytes;
  static constexpr u32 kStageBytes = kScalesAt + kRowAtoms * kScaleBytes;
  // A stage for each team, but no more than this: measured, more holds the tokens up.
  static constexpr u32 kPrefetchBytes = 44 << 10;
  static constexpr u32 kPrefetchedStages =
      kPrefetchBytes / kStageBytes < kTeams ? kPrefetchBytes / kStageBytes : kTeams;
  static_assert(kPrefetchedStages > 0, "a stage has more bytes than are fetched early");
  static constexpr u32 kSumBytes = kTokens * kPitch * 4;  // of a warp, where the stages were
  static constexpr u32 kSharedBytes = kStages * (kStageBytes + 16) + 1024;
  static_assert(kStages % kTeams == 0, "a place in the ring is one team's");
  static_assert(kWarps * kSumBytes <= kStages * kStageBytes, "the warps' sums lie where stages did");
  static_assert(kStageBytes % 1024 == 0, "the copy engine's alignment");
  static_assert(kRows - (kRows & -kRows) <= kAtomRows, "rows lie in two rows of atoms at most");

  // A token's part of a group that a lane holds: 32 codes and their two scales.
  struct Token {
    uint4 codes;
    u32 scales;
  };

  static __device__ __forceinline__ void run(u16* output, const u8* token_codes,
                                             const TensorMap* code_map, const u8* token_scales,
                                             const u8* row_scales, const float* gsa_a,
                                             const float* gsa_b, const u16* bias, u32 tokens,
                                             u32 rows, u32 columns, bool constant_b) {
    extern __shared__ uint4 shared[];
    const u32 lane = threadIdx.x & 31;
    const u32 warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x >> 5, 0);  // uniform, for the compiler too
    const u32 first_row = blockIdx.x * kRows;
    const u32 first_token = blockIdx.y * kTokens;
    const u32 stages = (columns + kStageK - 1) / kStageK;

    u8* const base = reinterpret_cast<u8*>(shared) + (-shared_address(shared) & 1023);
    const u32 ring = shared_address(base);
    const u32 full = ring + kStages * kStageBytes;
    const u32 empty = full + 8 * kStages;
    if (threadIdx.x == 0) {
#pragma unroll
      for (u32 i = 0; i < kStages; ++i) {
        mbarrier_init(full + 8 * i, 1);
        mbarrier_init(empty + 8 * i, 32 * kTeamWarps);  // every lane, once it has read its part
      }
      mbarrier_init_fence();
    }
    __syncthreads();

    if (warp >= kWarps) {
      if constexpr (kSharesRegisters) give_registers<24>();
      // Launched early (programmatically), this kernel fetches weights while the one before it ends: if
      // no kernel writes them, else no further than to L2.
      const Source source = {code_map, row_scales, first_row, rows, columns};
      const bool early = blockIdx.y * gridDim.x + blockIdx.x < multiprocessors() * kResident;
      allow_next_kernel();
      if (warp == kWarps && elect_one()) {
        prefetch_map(code_map);
        if (early && !constant_b) prefetch_stages(source, min(kPrefetchedStages, stages));
      }
      if (!constant_b) wait_for_previous_kernel();
      if (warp == kWarps && elect_one()) {
        load_stages(source, ring, full, empty, stages, early && constant_b);
      }
      __syncwarp();
      wait_for_previous_kernel();
      return;
    }
    if constexpr (kSharesRegisters) take_registers<240>();
    float sum[kSums][kProducts][4] = {};
    wait_for_previous_kernel();
    allow_next_kernel();
    add_products(sum, base, full, empty, warp, token_codes, token_scales, first_row, first_token, tokens,
                 columns);

    const float alpha_a = load_late(gsa_a + 1) * kTwoTo14;
    const float alpha_b = load_late(gsa_b + 1) * kTwoTo14;
    meet();  // nobody reads a stage any more
    // The lane's first sum; where its others lie from there, no instruction has to find out.
    float* const own = reinterpret_cast<float*>(base + warp * kSumBytes) +
                       (kTokensAreRows ? lane / 4 * kPitch + row_of(lane % 4 * 2)
                                       : lane % 4 * 2 * kPitch + row_of(lane / 4));
#pragma unroll
    for (u32 i = 0; i < kSums; ++i) {
#pragma unroll
      for (u32 c = 0; c < 4 * kProducts; ++c) {
        const u32 token = kTokensAreRows ? c / 2 * 8 : c % 2;
        const u32 unit = kTokensAreRows ? i : 2 * i + c / 2;
        const u32 row = kTokensAreRows ? row_of(c % 2) : 0;
        if (unit < kUnits) own[token * kPitch + unit * 8 + row] = sum[i][c / 4][c % 4];
      }
    }
    meet();
    // Two rows of one token a thread.
    for (u32 i = threadIdx.x; i < kTokens * kRows / 2; i += 32 * kWarps) {
      const u32 token = first_token + i / (kRows / 2);
      const u32 row = first_row + i % (kRows / 2) * 2;
      if (token >= tokens || row >= rows) continue;
      const float2* const from = reinterpret_cast<const float2*>(
          reinterpret_cast<const float*>(base) + i / (kRows / 2) * kPitch + i % (kRows / 2) * 2);
      float2 total = *from;
#pragma unroll
      for (u32 w = 1; w < kWarps; ++w) {
        const float2 more = from[w * kSumBytes / 8];
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

 private:
  // All warps but those that copy.
  static __device__ __forceinline__ void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory");
  }

  // Which of eight rows is the instruction's i-th: two that are read together differ in what the
  // swizzle changes, so that they do not meet in a bank.
  static __device__ __forceinline__ u32 row_of(u32 i) { return i / 2 + i % 2 * 4; }

  // One warp: its part of every stage of its team.
  static __device__ __forceinline__ void add_products(float (&sum)[kSums][kProducts][4], const u8* base,
                                                      u32 full, u32 empty, u32 warp,
                                                      const u8* token_codes, const u8* token_scales,
                                                      u32 first_row, u32 first_token, u32 tokens,
                                                      u32 columns) {
    const u32 lane = threadIdx.x & 31;
    const u32 k_atoms = scale_atoms(columns);
    const u32 stages = (columns + kStageK - 1) / kStageK;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 quarter = warp % kTeamWarps;
    const u32 row_of_g = row_of(g);
    u32 codes_at = quarter / 2 * kRows * kBoxBytes + row_of_g * kBoxBytes +
                         ((quarter % 2 * 4 + t) ^ row_of_g) * 16;
    // Of eight rows' scales, which lie together, the lane's two.
    u32 scales_at = kScalesAt + (quarter * 2 + t / 2) * kAtomBytes + row_of_g * 16 + t % 2 * 2;
    u32 scales_of_unit[kUnits];
#pragma unroll
    for (u32 u = 0; u < kUnits; ++u) {
      const u32 row = first_row % kAtomRows + u * 8;
      scales_of_unit[u] = row / kAtomRows * kScaleBytes + CUKILN_SCALE_ROW_OFFSET(row);
      keep(scales_of_unit[u]);
    }
    keep(codes_at);
    keep(scales_at);
    // The lane's token of a tile: its part of the group that is asked for next.
    constexpr u32 kStepK = kTeams * kStageK;
    const u32 token_row = first_token + g;
    u32 next_k = warp * kGroupK + t * kLaneK;
    const u8* next_codes = token_codes + static_cast<u64>(token_row) * (columns / 2) + next_k / 2;
    const u8* next_scales =
        token_scales + (static_cast<u64>(first_token / kAtomRows) * k_atoms + next_k / 64) * kAtomBytes +
        CUKILN_SCALE_ROW_OFFSET(token_row) + t % 2 * 2;
    // What lies beyond the last token or K stays what it was: weights beyond K are 0, rows beyond the
    // last token nobody reads.
    Token next[kTiles] = {};
    const auto ask = [&] {
      const bool inside = next_k < columns;
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
        if (inside && token_row + 8 * i < tokens) {
          next[i].codes = load_late(
              reinterpret_cast<const uint4*>(next_codes + static_cast<u64>(i) * 4 * columns));
          next[i].scales = load_late(reinterpret_cast<const u16*>(next_scales + i * 128));
        }
      }
      next_k += kStepK;
      next_codes += kStepK / 2;
      next_scales += kStepK / 64 * kAtomBytes;
      return inside;
    };

    // A warp asks for the next tokens before it waits for weights. For sm_100 ptxas then keeps so much
    // in registers that four would spill: there it asks after it, still a stage ahead.
    constexpr bool kAsksEarly = __CUDA_ARCH__ < 1000;

    bool next_inside = ask();
    for (u32 stage = warp / kTeamWarps; stage < stages; stage += kTeams) {
      const u32 slot = stage % kStages;
      const bool inside = next_inside;
      u32 operand[kTiles][4][4];  // the tokens of this group, two instructions a word
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
        const u32 scales = scales_f16x2(next[i].scales);
#pragma unroll
        for (u32 w = 0; w < 4; ++w) dequantize(word_of(next[i].codes, w), scales, w, operand[i][w]);
      }
      if constexpr (kAsksEarly) next_inside = ask();
      mbarrier_wait(full + 8 * slot, stage / kStages & 1);
      if constexpr (!kAsksEarly) next_inside = ask();
      __syncwarp();  // the products need all lanes together
      const u8* const from = base + slot * kStageBytes;
#pragma unroll
      for (u32 u = 0; u < kUnits; u += kUnitsAtOnce) {
        u32 weights[kUnitsAtOnce][4][4] = {};  // of an odd number of units, the last is alone
#pragma unroll
        for (u32 h = 0; h < kUnitsAtOnce; ++h) {
          if (u + h >= kUnits) break;
          const u8* const unit = from + codes_at + (u + h) * 8 * kBoxBytes;
          const u8* const unit_scales = from + scales_at + scales_of_unit[u + h];
          const uint4 codes = *reinterpret_cast<const uint4*>(unit);
          const u32 bytes = *reinterpret_cast<const u16*>(unit_scales);
          const u32 scales = scales_f16x2(inside ? bytes : 0);  // padding scales may be NaN
#pragma unroll
          for (u32 w = 0; w < 4; ++w) dequantize(word_of(codes, w), scales, w, weights[h][w]);
        }
#pragma unroll
        for (u32 w = 0; w < 4; ++w) {
#pragma unroll
          for (u32 j = 0; j < 4; j += 2) {
            if constexpr (kTokensAreRows) {
#pragma unroll
              for (u32 p = 0; p < kProducts; ++p) {
                const u32(&low)[4] = operand[2 * p][w];
                const u32(&high)[4] = operand[2 * p + 1][w];
                multiply_16x8x16(sum[u][p], {low[j], high[j], low[j + 1], high[j + 1]}, weights[0][w][j],
                                 weights[0][w][j + 1]);
              }
            } else {
              const u32(&low)[4] = weights[0][w];
              const u32(&high)[4] = weights[1][w];
              multiply_16x8x16(sum[u / 2][0], {low[j], high[j], low[j + 1], high[j + 1]},
                               operand[0][w][j], operand[0][w][j + 1]);
            }
          }
        }
      }
      mbarrier_arrive_here(empty + 8 * slot);
    }
  }

  static __device__ __forceinline__ u32 multiprocessors() {
    u32 count;
    asm("mov.u32 %0, %%nsmid;" : "=r"(count));
    return count;
  }

  // The block's rows of B.
  struct Source {
    const TensorMap* code_map;
    const u8* row_scales;
    u32 first_row;
    u32 rows;
    u32 columns;

    __device__ __forceinline__ u32 k_atoms() const { return scale_atoms(columns); }
    // Of a stage's scales in one row of atoms.
    __device__ __forceinline__ u32 scale_bytes(u32 stage) const {
      return min(kStageAtoms, k_atoms() - stage * kStageAtoms) * kAtomBytes;
    }
    __device__ __forceinline__ const u8* scales(u32 stage) const {
      return row_scales +
             (static_cast<u64>(first_row / kAtomRows) * k_atoms() + stage * kStageAtoms) * kAtomBytes;
    }
    __device__ __forceinline__ u64 scales_of_next_atom() const {
      return static_cast<u64>(k_atoms()) * kAtomBytes;
    }
    __device__ __forceinline__ bool reaches_next_atom() const {
      return first_row % kAtomRows + kRows > kAtomRows && (first_row / kAtomRows + 1) * kAtomRows < rows;
    }
  };

  // One lane: every stage, as soon as the warps have left its place. What is asked for waits behind what
  // was asked for before, and tokens are asked for late: `slowly` leaves them room, a stage for a team at
  // a time until the ring is full.
  static __device__ __forceinline__ void load_stages(const Source& source, u32 ring, u32 full, u32 empty,
                                                     u32 stages, bool slowly) {
    const bool second_atom = source.reaches_next_atom();
#pragma unroll 1
    for (u32 stage = 0; stage < stages; ++stage) {
      const u32 slot = stage % kStages;
      if (stage >= kStages) {
        mbarrier_wait(empty + 8 * slot, (stage / kStages - 1) & 1);
      } else if (slowly && stage >= kTeams) {
        mbarrier_wait(full + 8 * (stage - kTeams), 0);
      }
      const u32 to = ring + slot * kStageBytes;
      const u32 barrier = full + 8 * slot;
      const u32 bytes = source.scale_bytes(stage);
      mbarrier_arrive_expect(barrier, kScalesAt + (second_atom ? 2 : 1) * bytes);
      const u32 x = stage * (kStageK / 2);
      load_tile<1>(to, source.code_map, x, source.first_row, barrier);
      load_tile<1>(to + kRows * kBoxBytes, source.code_map, x + kBoxBytes, source.first_row, barrier);
      const u8* const atoms = source.scales(stage);
      copy_bytes(to + kScalesAt, atoms, bytes, barrier);
      if (second_atom) {
        copy_bytes(to + kScalesAt + kScaleBytes, atoms + source.scales_of_next_atom(), bytes, barrier);
      }
    }
  }

  // One lane: the first stages, to L2.
  static __device__ __forceinline__ void prefetch_stages(const Source& source, u32 count) {
#pragma unroll 1
    for (u32 stage = 0; stage < count; ++stage) {
      const u32 x = stage * (kStageK / 2);
      prefetch_tile(source.code_map, x, source.first_row);
      prefetch_tile(source.code_map, x + kBoxBytes, source.first_row);
      prefetch_bytes(source.scales(stage), source.scale_bytes(stage));
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
