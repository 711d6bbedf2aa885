// The decode GEMM, for few tokens: each weight is read once, and loading and dequantising weights is all of
// the time. Tokens are NVFP4 (Operand F16) or bf16 (Bf16).
//
// A thread block computes 8 * kRowTiles rows of B against all tokens, over all of K, so blocks share
// nothing. A producer warp loads weights (data and block scales) by TMA into a ring of stages of 512 of K.
// Of the consumer warps, four share a stage: each multiplies all rows over 128 of its K. At the end the
// consumers' partial sums are added in shared memory in a fixed order.
//
// Tokens are read by all blocks, and so come from L2, straight into registers, one stage ahead; behind the
// weights in TMA's queue they would arrive late. The first ones can load only after the preceding kernel
// ends (PDL). With a full ring of weights in flight they queue behind it for about 1 us, so weight loads
// are throttled until the ring has been filled once. What bounds the kernel then is dequantisation: its
// integer and half-precision instructions take as long as the memory.
#pragma once

#include "alpha.cuh"
#include "async_copy.cuh"
#include "gemm_sm90_dequantize.cuh"

namespace cukiln {
namespace nvfp4 {

// Hides a value's origin from the compiler, which would otherwise recompute it in every iteration.
__device__ __forceinline__ void opaque(u32& value) { asm("" : "+r"(value)); }

// What the GEMM computes: output = tokens * weights^T, scaled.
struct DecodeProblem {
  u16* output;           // [tokens, rows]
  const u8* token_data;  // NVFP4, or bf16
  const TensorMap* weight_map;
  const u8* token_scales;  // of NVFP4
  const u8* row_scales;    // block scales of the weights
  const float* a_global_scale;  // of NVFP4
  const float* b_global_scale;
  const u16* bias;  // [rows], or null
  u32 tokens;
  u32 rows;
  u32 columns;
  bool constant_b;  // the preceding kernel, amax kernels not counted, does not write the weights
  u64 token_stride = 0;  // of bf16: elements from one token to the next
};

// What a lane holds of a token in a group of 128: 32 values.
template <class Operand>
struct DecodeToken;

template <>
struct DecodeToken<F16> {
  uint4 data;
  u32 scales;
};

template <>
struct DecodeToken<Bf16> {
  uint4 eight[4];
};

// kTokens: 8 or a multiple of 16. kBlocksPerSm: occupancy, for __launch_bounds__.
template <u32 kTokens, u32 kRowTiles, u32 kBlocksPerSm, class Operand = F16, u32 kStages = 4,
          u32 kWarpgroups = 2>
struct DecodeGemm {
  static constexpr bool kQuantizedTokens = kIsSame<Operand, F16>;
  static constexpr u32 kWarpsPerGroup = 4;  // consumer warps that share a stage
  static constexpr u32 kWarps = kWarpgroups * kWarpsPerGroup;
  // More than 16 tokens need more registers than an even share: the producer is then a whole warpgroup that
  // gives most of its own away (setmaxnreg).
  static constexpr bool kReallocatesRegisters = kTokens > 16;
  static constexpr u32 kThreads = 32 * (kWarps + (kReallocatesRegisters ? 4 : 1));
  static constexpr u32 kRows = 8 * kRowTiles;
  static constexpr u32 kPitch = kRows + 4;  // floats of a token's sums; + 4 avoids bank conflicts
  static constexpr u32 kTokenTiles = kTokens / 8;
  // Operand roles in mma.m16n8k16. 16 tokens: tokens are M, 8 weight rows are N. 8 tokens: 16 weight rows
  // are M, tokens are N.
  static constexpr bool kTokensAreRows = kTokens != 8;
  static constexpr u32 kRowTilesPerMma = kTokensAreRows ? 1 : 2;
  static constexpr u32 kMmasPerWeight = kTokensAreRows ? kTokens / 16 : 1;  // that use a dequantised weight
  static constexpr u32 kAccumulators = (kRowTiles + kRowTilesPerMma - 1) / kRowTilesPerMma;
  // A stage: two TMA boxes of 256 of K of each row, swizzled, then whole atoms of the rows' scales, which
  // may span two rows of atoms.
  static constexpr u32 kStageK = kWarpsPerGroup * kGroupK;
  static constexpr u32 kBoxBytes = 128;  // of each row
  static constexpr u32 kStageAtoms = kStageK / 64;
  static constexpr u32 kRowAtoms = kAtomRows % kRows == 0 ? 1 : 2;
  static constexpr u32 kScalesAt = 2 * kRows * kBoxBytes;
  static constexpr u32 kScaleBytes = kStageAtoms * kAtomBytes;
  static constexpr u32 kStageBytes = kScalesAt + kRowAtoms * kScaleBytes;
  // Prefetched to L2: a stage for each warpgroup, limited to what was measured not to delay the tokens.
  static constexpr u32 kPrefetchBytes = 44 << 10;
  static constexpr u32 kPrefetchedStages =
      kPrefetchBytes / kStageBytes < kWarpgroups ? kPrefetchBytes / kStageBytes : kWarpgroups;
  static_assert(kPrefetchedStages > 0, "a stage has more bytes than are prefetched");
  static constexpr u32 kSumBytes = kTokens * kPitch * 4;  // of a warp; reuses the stages' memory
  static constexpr u32 kSharedBytes = kStages * (kStageBytes + 16) + 1024;
  static_assert(kStages % kWarpgroups == 0, "each slot of the ring belongs to one warpgroup");
  static_assert(kWarps * kSumBytes <= kStages * kStageBytes, "the warps' sums reuse the stages' memory");
  static_assert(kStageBytes % 1024 == 0, "the alignment of TMA's swizzle");
  static_assert(kRows - (kRows & -kRows) <= kAtomRows, "rows span two rows of atoms at most");

  using Token = DecodeToken<Operand>;

  // Computes this block's rows of B for its tokens.
  static __device__ __forceinline__ void run(const DecodeProblem& problem) {
    extern __shared__ uint4 shared[];
    // The shuffle shows the compiler that the number is the same in the whole warp.
    const u32 warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x >> 5, 0);
    const u32 first_row = blockIdx.x * kRows;
    const u32 first_token = blockIdx.y * kTokens;

    u8* const base = reinterpret_cast<u8*>(shared) + (-shared_address(shared) & 1023);
    const u32 ring = shared_address(base);
    const u32 full = ring + kStages * kStageBytes;
    const u32 empty = full + 8 * kStages;
    // init_ring of the prefill GEMMs. As a function the compiler makes other machine code of it for sm_100a.
    if (threadIdx.x == 0) {
#pragma unroll
      for (u32 i = 0; i < kStages; ++i) {
        mbarrier_init(full + 8 * i, 1);
        mbarrier_init(empty + 8 * i, 32 * kWarpsPerGroup);  // every consumer lane arrives
      }
      mbarrier_init_fence();
    }
    __syncthreads();

    if (warp >= kWarps) {
      if constexpr (kReallocatesRegisters) warpgroup_reg_dealloc<24>();
      const WeightTile weight_tile = {problem.weight_map, problem.row_scales, first_row, problem.rows,
                                      problem.columns};
      run_producer(weight_tile, ring, full, empty, problem.constant_b, warp == kWarps);
    } else {
      if constexpr (kReallocatesRegisters) warpgroup_reg_alloc<240>();
      Sums sum = {};
      griddepcontrol_wait();
      griddepcontrol_launch_dependents();
      run_consumer(sum, problem, base, full, empty, warp, first_row, first_token);
      run_epilogue(sum, problem, base, warp, first_row, first_token);
    }
  }

 private:
  // Of a consumer lane.
  using Sums = float[kAccumulators][kMmasPerWeight][4];

  // Named barrier of the consumer warps.
  static __device__ __forceinline__ void consumer_sync() {
    named_barrier_sync<32 * kWarps>(1);
  }

  // The weight row at index i of an MMA's eight: a permutation with which two rows that are read together
  // differ in the swizzle, and so are in different banks.
  static __device__ __forceinline__ u32 row_of(u32 i) { return i / 2 + i % 2 * 4; }

  // A consumer warp's main loop: its 128 of K of every stage of its warpgroup.
  static __device__ __forceinline__ void run_consumer(Sums& sum, const DecodeProblem& problem,
                                                      const u8* base, u32 full, u32 empty, u32 warp,
                                                      u32 first_row, u32 first_token) {
    const u32 columns = problem.columns;
    const u32 lane = threadIdx.x & 31;
    const u32 k_atoms = scale_atoms(columns);
    const u32 stages = (columns + kStageK - 1) / kStageK;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 quarter = warp % kWarpsPerGroup;
    const u32 row_of_g = row_of(g);
    u32 data_at = quarter / 2 * kRows * kBoxBytes + row_of_g * kBoxBytes +
                         ((quarter % 2 * 4 + t) ^ row_of_g) * 16;
    // The lane's two scales of the first row tile; a tile's eight rows are 16 bytes apart.
    u32 scales_at = kScalesAt + (quarter * 2 + t / 2) * kAtomBytes + row_of_g * 16 + t % 2 * 2;
    u32 scales_of_row_tile[kRowTiles];
#pragma unroll
    for (u32 u = 0; u < kRowTiles; ++u) {
      const u32 row = first_row % kAtomRows + u * 8;
      scales_of_row_tile[u] = row / kAtomRows * kScaleBytes + CUKILN_SCALE_ROW_OFFSET(row);
      opaque(scales_of_row_tile[u]);
    }
    opaque(data_at);
    opaque(scales_at);
    // Where the lane's next 32 values and scales of its first token are; its other tokens are 8 rows apart.
    constexpr u32 kStepK = kWarpgroups * kStageK;
    const u32 token_row = first_token + g;
    u32 next_k = warp * kGroupK + t * kLaneK;
    const u8* next_data =
        kQuantizedTokens
            ? problem.token_data + static_cast<u64>(token_row) * (columns / 2) + next_k / 2
            : problem.token_data + (token_row * problem.token_stride + next_k) * 2;
    const u8* next_scales =
        problem.token_scales +
        (static_cast<u64>(first_token / kAtomRows) * k_atoms + next_k / 64) * kAtomBytes +
        CUKILN_SCALE_ROW_OFFSET(token_row) + t % 2 * 2;
    // Beyond the last token `next` keeps old values, which are not stored. Beyond K weights are 0: NVFP4
    // tokens keep old values there, too, but bf16 ones, which may be infinite, become 0.
    Token next[kTokenTiles] = {};
    const auto load_next_tokens = [&] {
      const bool inside = next_k < columns;
#pragma unroll
      for (u32 i = 0; i < kTokenTiles; ++i) {
        if (inside && token_row + 8 * i < problem.tokens) {
          if constexpr (kQuantizedTokens) {
            next[i].data = load_after_wait(
                reinterpret_cast<const uint4*>(next_data + static_cast<u64>(i) * 4 * columns));
            next[i].scales = load_after_wait(reinterpret_cast<const u16*>(next_scales + i * 128));
          } else {
            const uint4* const from =
                reinterpret_cast<const uint4*>(next_data + i * 16 * problem.token_stride);
#pragma unroll
            for (u32 w = 0; w < 4; ++w) next[i].eight[w] = load_after_wait(from + w);
          }
        } else if constexpr (!kQuantizedTokens) {
          next[i] = {};
        }
      }
      next_k += kStepK;
      next_data += kQuantizedTokens ? kStepK / 2 : kStepK * 2;
      next_scales += kStepK / 64 * kAtomBytes;
      return inside;
    };

    // A warp loads the next tokens before it waits for weights. For sm_100 ptxas would spill four registers
    // then: there it loads them after the wait, still one stage ahead.
    constexpr bool kLoadsTokensBeforeWait = __CUDA_ARCH__ < 1000;

    bool next_is_inside = load_next_tokens();
    for (u32 stage = warp / kWarpsPerGroup; stage < stages; stage += kWarpgroups) {
      const u32 slot = stage % kStages;
      const bool inside = next_is_inside;
      u32 operand[kTokenTiles][4][4];  // the tokens of this group, dequantised; two MMAs for each word
#pragma unroll
      for (u32 i = 0; i < kTokenTiles; ++i) {
        if constexpr (kQuantizedTokens) {
          const u32 scales = Operand::scales(next[i].scales);
#pragma unroll
          for (u32 w = 0; w < 4; ++w) {
            Operand::dequantize(word_of(next[i].data, w), scales, w, operand[i][w]);
          }
        } else {
#pragma unroll
          for (u32 w = 0; w < 4; ++w) Operand::arrange(next[i].eight[w], operand[i][w]);
        }
      }
      if constexpr (kLoadsTokensBeforeWait) next_is_inside = load_next_tokens();
      mbarrier_wait(full + 8 * slot, stage / kStages & 1);
      if constexpr (!kLoadsTokensBeforeWait) next_is_inside = load_next_tokens();
      __syncwarp();  // mma.sync needs a converged warp
      const u8* const from = base + slot * kStageBytes;
#pragma unroll
      for (u32 u = 0; u < kRowTiles; u += kRowTilesPerMma) {
        // With an odd number of row tiles the last MMA's second tile is 0.
        u32 weights[kRowTilesPerMma][4][4] = {};
#pragma unroll
        for (u32 h = 0; h < kRowTilesPerMma; ++h) {
          if (u + h >= kRowTiles) break;
          const u8* const row_tile = from + data_at + (u + h) * 8 * kBoxBytes;
          const u8* const tile_scales = from + scales_at + scales_of_row_tile[u + h];
          const uint4 data = *reinterpret_cast<const uint4*>(row_tile);
          const u32 bytes = *reinterpret_cast<const u16*>(tile_scales);
          const u32 scales = Operand::scales(inside ? bytes : 0);  // padding scales may be NaN
#pragma unroll
          for (u32 w = 0; w < 4; ++w) {
            Operand::dequantize(word_of(data, w), scales, w, weights[h][w]);
          }
        }
#pragma unroll
        for (u32 w = 0; w < 4; ++w) {
#pragma unroll
          for (u32 j = 0; j < 4; j += 2) {
            if constexpr (kTokensAreRows) {
#pragma unroll
              for (u32 p = 0; p < kMmasPerWeight; ++p) {
                const u32(&low)[4] = operand[2 * p][w];
                const u32(&high)[4] = operand[2 * p + 1][w];
                Operand::mma(sum[u][p], {low[j], high[j], low[j + 1], high[j + 1]}, weights[0][w][j],
                             weights[0][w][j + 1]);
              }
            } else {
              const u32(&low)[4] = weights[0][w];
              const u32(&high)[4] = weights[1][w];
              Operand::mma(sum[u / 2][0], {low[j], high[j], low[j + 1], high[j + 1]},
                           operand[0][w][j], operand[0][w][j + 1]);
            }
          }
        }
      }
      release_stage(empty + 8 * slot);
    }
  }

  // Adds the consumer warps' sums, scales, adds the bias, rounds and stores.
  static __device__ __forceinline__ void run_epilogue(const Sums& sum, const DecodeProblem& problem,
                                                      u8* base, u32 warp, u32 first_row,
                                                      u32 first_token) {
    const u32 lane = threadIdx.x & 31;
    const GemmAlpha<Operand> alpha{
        kQuantizedTokens ? load_after_wait(problem.a_global_scale + kDecode) * kTwoTo14 : 1.0f,
        load_after_wait(problem.b_global_scale + kDecode) * Operand::kWeightFactor};
    consumer_sync();  // all stages have been read: their memory is reused
    // Address of the lane's first sum; the others are at compile-time offsets.
    float* const first_sum = reinterpret_cast<float*>(base + warp * kSumBytes) +
                       (kTokensAreRows ? lane / 4 * kPitch + row_of(lane % 4 * 2)
                                       : lane % 4 * 2 * kPitch + row_of(lane / 4));
#pragma unroll
    for (u32 i = 0; i < kAccumulators; ++i) {
#pragma unroll
      for (u32 c = 0; c < 4 * kMmasPerWeight; ++c) {
        const u32 token = kTokensAreRows ? c / 2 * 8 : c % 2;
        const u32 row_tile = kTokensAreRows ? i : 2 * i + c / 2;
        const u32 row = kTokensAreRows ? row_of(c % 2) : 0;
        if (row_tile < kRowTiles) first_sum[token * kPitch + row_tile * 8 + row] = sum[i][c / 4][c % 4];
      }
    }
    consumer_sync();
    // Each thread adds up and stores two rows of one token.
    for (u32 i = threadIdx.x; i < kTokens * kRows / 2; i += 32 * kWarps) {
      const u32 token = first_token + i / (kRows / 2);
      const u32 row = first_row + i % (kRows / 2) * 2;
      if (token >= problem.tokens || row >= problem.rows) continue;
      const float2* const from = reinterpret_cast<const float2*>(
          reinterpret_cast<const float*>(base) + i / (kRows / 2) * kPitch + i % (kRows / 2) * 2);
      float2 total = *from;
#pragma unroll
      for (u32 w = 1; w < kWarps; ++w) {
        const float2 more = from[w * kSumBytes / 8];
        total.x += more.x;
        total.y += more.y;
      }
      total.x = alpha(total.x);
      total.y = alpha(total.y);
      if (problem.bias != nullptr) {
        const u32 add = __ldg(reinterpret_cast<const u32*>(problem.bias + row));
        total.x += low_bf16(add);
        total.y += high_bf16(add);
      }
      *reinterpret_cast<u32*>(problem.output + static_cast<u64>(token) * problem.rows + row) =
          pack_bf16x2(total.x, total.y);
    }
  }

  static __device__ __forceinline__ u32 num_sms() {
    u32 count;
    asm("mov.u32 %0, %%nsmid;" : "=r"(count));
    return count;
  }

  // The rows of B that this thread block computes.
  struct WeightTile {
    const TensorMap* weight_map;
    const u8* row_scales;
    u32 first_row;
    u32 rows;
    u32 columns;

    __device__ __forceinline__ u32 k_atoms() const { return scale_atoms(columns); }
    // Bytes of a stage's scales in one row of atoms.
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

  // The producer's loop, in one lane of the warp that `loads`. With PDL this kernel starts before its
  // predecessor ends. With constant_b, the host's promise that the predecessor does not write B, weights are
  // loaded to shared memory immediately, else only prefetched into L2 until the predecessor ends.
  static __device__ __forceinline__ void run_producer(const WeightTile& weight_tile, u32 ring, u32 full,
                                                      u32 empty, bool constant_b, bool loads) {
    const u32 stages = (weight_tile.columns + kStageK - 1) / kStageK;
    const bool early = blockIdx.y * gridDim.x + blockIdx.x < num_sms() * kBlocksPerSm;
    if (loads && elect_one_sync()) {
      prefetch_tensormap(weight_tile.weight_map);
      if (early && !constant_b) prefetch_stages(weight_tile, min(kPrefetchedStages, stages));
    }
    if (!constant_b) griddepcontrol_wait();
    if (loads && elect_one_sync()) {
      load_stages(weight_tile, ring, full, empty, stages, early && constant_b);
    }
    __syncwarp();
    griddepcontrol_wait();
  }

  // Loads each stage as soon as its slot is empty, in one lane. `throttled`: until the
  // ring has been filled once, at most kWarpgroups stages are in flight, so that the first token loads do
  // not queue behind weights.
  static __device__ __forceinline__ void load_stages(const WeightTile& weight_tile, u32 ring, u32 full,
                                                     u32 empty, u32 stages, bool throttled) {
    const bool second_atom = weight_tile.reaches_next_atom();
#pragma unroll 1
    for (u32 stage = 0; stage < stages; ++stage) {
      const u32 slot = stage % kStages;
      if (stage >= kStages) {
        mbarrier_wait(empty + 8 * slot, (stage / kStages - 1) & 1);
      } else if (throttled && stage >= kWarpgroups) {
        mbarrier_wait(full + 8 * (stage - kWarpgroups), 0);
      }
      const u32 to = ring + slot * kStageBytes;
      const u32 barrier = full + 8 * slot;
      const u32 bytes = weight_tile.scale_bytes(stage);
      mbarrier_arrive_expect(barrier, kScalesAt + (second_atom ? 2 : 1) * bytes);
      const u32 x = stage * (kStageK / 2);
      tma_load<1>(to, weight_tile.weight_map, x, weight_tile.first_row, barrier);
      tma_load<1>(to + kRows * kBoxBytes, weight_tile.weight_map, x + kBoxBytes, weight_tile.first_row,
                  barrier);
      const u8* const atoms = weight_tile.scales(stage);
      bulk_copy(to + kScalesAt, atoms, bytes, barrier);
      if (second_atom) {
        bulk_copy(to + kScalesAt + kScaleBytes, atoms + weight_tile.scales_of_next_atom(), bytes, barrier);
      }
    }
  }

  // Prefetches the first stages into L2, in one lane.
  static __device__ __forceinline__ void prefetch_stages(const WeightTile& weight_tile, u32 count) {
#pragma unroll 1
    for (u32 stage = 0; stage < count; ++stage) {
      const u32 x = stage * (kStageK / 2);
      tma_prefetch(weight_tile.weight_map, x, weight_tile.first_row);
      tma_prefetch(weight_tile.weight_map, x + kBoxBytes, weight_tile.first_row);
      bulk_prefetch(weight_tile.scales(stage), weight_tile.scale_bytes(stage));
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
