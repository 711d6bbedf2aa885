// The GEMMs of a mixture of experts for many tokens an expert, on sm_90a: what the kernels of
// nvfp4_moe_prefill.cu and nvfp4_moe_w4a16_prefill.cu have in common. Each is a persistent kernel over tiles
// of tokens by tiles of the result's columns. `UpStep` and `DownStep` say which rows of weights make a tile,
// and what becomes of its sums; their `Output`, what sums are multiplied by, and where results are stored.
#pragma once

#include "alpha.cuh"
#include "moe_warpgroup.cuh"
#include "swiglu.cuh"

namespace cukiln {
namespace nvfp4 {

__device__ __forceinline__ void store_shared_bf16(u32 address, float value) {
  asm volatile(
      "{\n\t"
      ".reg .b16 rounded;\n\t"
      "cvt.rn.bf16.f32 rounded, %1;\n\t"
      "st.shared.b16 [%0], rounded;\n\t"
      "}" ::"r"(address),
      "f"(value)
      : "memory");
}

// What both GEMMs are given. `columns`: of the result; width in the first. `k` is what is summed over.
struct TileProblem {
  const MoeTile* tiles;
  const u32* tile_count;
  const u8* weight_scales;
  const float* weight_decode;
  const bf16* bias;  // of all experts' rows of weights, or null
  u32 columns;
  u32 k;
};

// The bias of a row of weights, in the tensor map of all experts.
__device__ __forceinline__ float bias_of(const bf16* bias, u32 row) {
  return low_bf16(bias != nullptr ? bias[row] : kNoBias);
}

struct UpProblem : TileProblem {
  u32 layout;
  float limit;
  float alpha;
  float beta;
};

// The first GEMM, whose weights are gate and up, and SwiGLU.
template <class OutputOfStep, u32 kRows>
struct UpStep {
  using Problem = UpProblem;
  using Output = OutputOfStep;
  static constexpr u32 kTileColumns = kRows / 2;
  static constexpr u32 kResultPitch = kTileColumns * 2 + 16;  // bytes of a token's bf16 results
  static constexpr bool kHasThreeQuarters = true;             // tiles of three quarters of the tokens

  static __device__ __forceinline__ SwiGlu activation(const UpProblem& a) {
    return SwiGlu::of(a.limit, a.alpha, a.beta);
  }

  static __device__ __forceinline__ WeightBoxes boxes_of(const UpProblem& a, const MoeTile& tile,
                                                         u32 first_column, u32 k_atoms) {
    const bool in_pairs = a.layout == kPairs;
    const u32 row[2] = {in_pairs ? 2 * first_column : first_column,
                        in_pairs ? 2 * first_column + kRows / 2 : a.columns + first_column};
    const u8* const scales = a.weight_scales + tile.expert * padded_scale_bytes(2 * a.columns, a.k);
    WeightBoxes boxes;
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      boxes.set(i, scales, tile.expert * 2 * a.columns, row[i], 2 * a.columns, k_atoms);
    }
    return boxes;
  }

  // A thread has the gate and the up row of its column.
  template <u32 kTokens, class Gemm>
  static __device__ __forceinline__ void compute_tile(Gemm& gemm, const UpProblem& a, const Output& output,
                                                      const MoeTile& tile, u32 first_column,
                                                      const WeightBoxes& weights, const SwiGlu& activate) {
    const u32 lane = threadIdx.x & 31;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 thread = threadIdx.x - 128;
    const u32 column = thread / 32 * 8 + g;
    const bool in_pairs = a.layout == kPairs;
    const u32 rows[2] = {in_pairs ? 2 * column : column, in_pairs ? 2 * column + 1 : kTileColumns + column};
    float sum[kTokens / 2];
    gemm.template consume<kTokens>(sum, rows, weights, tile.count);
    const auto scaled = output.alpha(a.weight_decode[tile.expert]);
    float bias[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const u32 row = (rows[i] < kRows / 2 ? weights.row[0] : weights.row[1]) + rows[i] % (kRows / 2);
      bias[i] = bias_of(first_column + column < a.columns ? a.bias : nullptr, row);
    }

    const u32 results = gemm.base + Gemm::kResults;
    Gemm::consumers_sync();  // the previous tile's results have been read
#pragma unroll
    for (u32 j = 0; j < kTokens / 8; ++j) {
      if (Gemm::kIsSmall && 8 * j >= tile.count) break;
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        store_shared_bf16(results + (8 * j + 2 * t + i) * kResultPitch + column * 2,
                          activate(scaled(sum[4 * j + i], bias[0]), scaled(sum[4 * j + 2 + i], bias[1])));
      }
    }
    Gemm::consumers_sync();
    constexpr u32 kHalves = kTileColumns / 64;  // of 64 columns
    for (u32 i = thread; i < tile.count * kHalves * 4; i += Gemm::kConsumerThreads) {
      const u32 token = i / (4 * kHalves);
      const u32 half = i / 4 % kHalves;
      const u32 column_of_half = first_column + 64 * half;
      if (column_of_half >= a.columns) continue;
      output.store(results + token * kResultPitch + half * 128, tile.first + token, i % 4, column_of_half,
                   a.columns);
    }
  }
};

// The second GEMM, whose results are rounded to bf16, by position. A thread has two rows of weights, 8 apart.
template <class OutputOfStep, u32 kRows>
struct DownStep {
  using Problem = TileProblem;
  using Output = OutputOfStep;
  static constexpr u32 kTileColumns = kRows;
  static constexpr u32 kResultPitch = kTileColumns * 2 + 16;
  static constexpr bool kHasThreeQuarters = false;

  struct None {};
  static __device__ __forceinline__ None activation(const TileProblem&) { return {}; }

  static __device__ __forceinline__ WeightBoxes boxes_of(const TileProblem& a, const MoeTile& tile,
                                                         u32 first_column, u32 k_atoms) {
    const u8* const scales = a.weight_scales + tile.expert * padded_scale_bytes(a.columns, a.k);
    WeightBoxes boxes;
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      // The last tile may have one box only: the other's results are not stored.
      const u32 row = first_column + (i != 0 && first_column + kRows / 2 < a.columns ? kRows / 2 : 0);
      boxes.set(i, scales, tile.expert * a.columns, row, a.columns, k_atoms);
    }
    return boxes;
  }

  template <u32 kTokens, class Gemm>
  static __device__ __forceinline__ void compute_tile(Gemm& gemm, const TileProblem& a,
                                                      const Output& output, const MoeTile& tile,
                                                      u32 first_column, const WeightBoxes& weights, None) {
    const u32 lane = threadIdx.x & 31;
    const u32 row = (threadIdx.x - 128) / 32 * 16 + (lane >> 2);
    const u32 rows[2] = {row, row + 8};
    float sum[kTokens / 2];
    gemm.template consume<kTokens>(sum, rows, weights, tile.count);
    float bias[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const bool is_inside = first_column + rows[i] < a.columns;
      bias[i] = bias_of(is_inside ? a.bias : nullptr, weights.row[0] + rows[i]);
    }
    const auto alpha = output.alpha(a.weight_decode[tile.expert]);
    const u32 results = gemm.base + Gemm::kResults;
    Gemm::consumers_sync();  // the previous tile's results have been read
#pragma unroll
    for (u32 j = 0; j < kTokens / 8; ++j) {
      if (Gemm::kIsSmall && 8 * j >= tile.count) break;
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        const u32 token = 8 * j + (threadIdx.x & 3) * 2 + i;
        const auto scaled = output.alpha_of_row(alpha, tile.first + min(token, tile.count - 1));
#pragma unroll
        for (u32 r = 0; r < 2; ++r) {
          store_shared_bf16(results + token * kResultPitch + rows[r] * 2,
                            scaled(sum[4 * j + 2 * r + i], bias[r]));
        }
      }
    }
    Gemm::consumers_sync();
    constexpr u32 kVectors = kTileColumns / 8;  // of a token
    for (u32 i = threadIdx.x - 128; i < tile.count * kVectors; i += Gemm::kConsumerThreads) {
      const u32 token = i / kVectors;
      const u32 vector = i % kVectors;
      const u32 column = first_column + vector * 8;
      if (column >= a.columns) continue;
      *reinterpret_cast<uint4*>(output.rows + static_cast<u64>(tile.first + token) * a.columns + column) =
          load_shared(results + token * kResultPitch + vector * 16);
    }
  }
};

// The persistent kernel of a step.
template <class Step, u32 kTokens, u32 kStages>
struct TileGemm : WarpgroupGemm<typename Step::Output::Operands, kTokens, kStages> {
  using Base = WarpgroupGemm<typename Step::Output::Operands, kTokens, kStages>;
  static constexpr u32 kResults = Base::kRingBytes;
  static constexpr u32 kBarriers = kResults + kTokens * Step::kResultPitch;
  static constexpr u32 kSharedBytes = 1024 + kBarriers + 16 * kStages;
  // Of a thread, for setmaxnreg.
  static constexpr u32 kProducerRegisters = Base::kWarpgroups == 4 ? 32 : 40;
  static constexpr u32 kConsumerRegisters = Base::kWarpgroups == 4 ? 112 : 232;

  // Computes the tiles of this thread block.
  __device__ __forceinline__ void run(const typename Step::Problem& a, const typename Step::Output& output,
                                      const TensorMap* token_map, const TensorMap* weight_map) {
    extern __shared__ uint4 shared[];
    const u32 ring = (shared_address(shared) + 1023) & ~1023u;
    Base::init(ring, ring + kBarriers, a.k);
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    const u32 column_tiles = (a.columns + Step::kTileColumns - 1) / Step::kTileColumns;
    const u32 work = *a.tile_count * column_tiles;
    if (threadIdx.x < 128) {  // the producer warpgroup
      warpgroup_reg_dealloc<kProducerRegisters>();
      if (threadIdx.x != 0) return;
      prefetch_tensormap(token_map);
      prefetch_tensormap(weight_map);
      for (u32 i = blockIdx.x; i < work; i += gridDim.x) {
        const MoeTile tile = a.tiles[i / column_tiles];
        Base::produce(token_map, weight_map, tile.first, tile.count,
                      Step::boxes_of(a, tile, i % column_tiles * Step::kTileColumns, Base::k_atoms));
      }
      return;
    }
    warpgroup_reg_alloc<kConsumerRegisters>();
    const auto activate = Step::activation(a);
    for (u32 i = blockIdx.x; i < work; i += gridDim.x) {
      const MoeTile tile = a.tiles[i / column_tiles];
      const u32 first_column = i % column_tiles * Step::kTileColumns;
      const WeightBoxes weights = Step::boxes_of(a, tile, first_column, Base::k_atoms);
      if constexpr (Base::kIsSmall) {
        Step::template compute_tile<kTokens>(*this, a, output, tile, first_column, weights, activate);
      } else if (tile.count <= kTokens / 2) {  // fewer of the MMA's columns suffice
        Step::template compute_tile<kTokens / 2>(*this, a, output, tile, first_column, weights, activate);
      } else if (Step::kHasThreeQuarters && tile.count <= kTokens / 4 * 3) {
        Step::template compute_tile<kTokens / 4 * 3>(*this, a, output, tile, first_column, weights,
                                                     activate);
      } else {
        Step::template compute_tile<kTokens>(*this, a, output, tile, first_column, weights, activate);
      }
    }
  }
};

constexpr u32 kMoeTokens = CUKILN_MOE_TOKENS;
static_assert(kMoeTokens == 64 || kMoeTokens == 128, "CUKILN_MOE_TOKENS is 64 or 128");

constexpr u32 kMoeRows = kMoeTokens == 64 ? 256 : 128;           // of weights, in a tile
constexpr u32 kMoeStages = kMoeTokens == 64 ? 5 : 4;             // as many as fit in shared memory
constexpr u32 kMoeSharedBytes = kMoeTokens == 64 ? 219216 : 207936;  // that the launcher allocates

template <template <class, u32> class Step, class Output>
using MoeTileGemm = TileGemm<Step<Output, kMoeRows>, kMoeTokens, kMoeStages>;

}  // namespace nvfp4
}  // namespace cukiln
