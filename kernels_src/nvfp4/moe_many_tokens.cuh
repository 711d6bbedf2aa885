// The GEMMs of a mixture of experts for many tokens an expert, on sm_90a: what the kernels of
// nvfp4_moe_prefill.cu and nvfp4_moe_w4a16_prefill.cu have in common. Each is a persistent kernel over tiles
// of tokens by rows of weights; `Output` says what sums are multiplied by, and stores a tile.
#pragma once

#include "moe_warpgroup.cuh"
#include "swiglu.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kResultBarrier = 1;  // of the consumers

__device__ __forceinline__ void consumers_sync() {
  asm volatile("bar.sync %0, 256;" ::"n"(kResultBarrier) : "memory");
}

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

struct UpProblem {
  const MoeTile* tiles;
  const u32* tile_count;
  const u8* weight_scales;
  const float* weight_decode;
  u32 columns;
  u32 width;
  u32 layout;
  float limit;
  float alpha;
  float beta;
};

template <class Output, u32 kTokens, u32 kStages, u32 kBlocksPerSm>
struct UpGemm : WarpgroupGemm<typename Output::Operands, kTokens, kStages> {
  using Base = WarpgroupGemm<typename Output::Operands, kTokens, kStages>;
  static constexpr u32 kResultPitch = 64 * 2 + 16;  // bytes of a token's 64 bf16 results
  static constexpr u32 kResults = Base::kRingBytes;
  static constexpr u32 kBarriers = kResults + kTokens * kResultPitch;
  static constexpr u32 kSharedBytes = 1024 + kBarriers + 16 * kStages;

  static __device__ __forceinline__ WeightBoxes boxes_of(const UpProblem& a, const MoeTile& tile,
                                                         u32 first_column, u32 k_atoms) {
    const bool in_pairs = a.layout == kPairs;
    const u32 row[2] = {in_pairs ? 2 * first_column : first_column,
                        in_pairs ? 2 * first_column + 64 : a.width + first_column};
    const u8* const scales = a.weight_scales + tile.expert * padded_scale_bytes(2 * a.width, a.columns);
    WeightBoxes boxes;
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      boxes.row[i] = tile.expert * 2 * a.width + row[i];
      boxes.scales[i] = scales + static_cast<u64>(row[i] / kAtomRows) * k_atoms * kAtomBytes;
      boxes.atom_row[i] = row[i] % kAtomRows;
    }
    return boxes;
  }

  // Computes and stores the SwiGLU of a tile. A thread has the gate and the up row of its column.
  template <u32 kColumns>
  __device__ __forceinline__ void compute_tile(const UpProblem& a, const Output& output,
                                               const MoeTile& tile, u32 first_column,
                                               const WeightBoxes& weights, const SwiGlu& activate) {
    const u32 lane = threadIdx.x & 31;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 thread = threadIdx.x - 128;
    const u32 column = thread / 32 * 8 + g;
    const bool in_pairs = a.layout == kPairs;
    const u32 rows[2] = {in_pairs ? 2 * column : column, in_pairs ? 2 * column + 1 : 64 + column};
    float sum[kColumns / 2];
    Base::template consume<kColumns>(sum, rows, weights);
    const auto scaled = output.alpha(a.weight_decode[tile.expert]);

    const u32 results = Base::base + kResults;
    consumers_sync();  // the previous tile's results have been read
#pragma unroll
    for (u32 j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        store_shared_bf16(results + (8 * j + 2 * t + i) * kResultPitch + column * 2,
                          activate(scaled(sum[4 * j + i]), scaled(sum[4 * j + 2 + i])));
      }
    }
    consumers_sync();
    for (u32 i = thread; i < tile.count * 4; i += Base::kConsumerThreads) {
      output.store(results + i / 4 * kResultPitch, tile.first + i / 4, i % 4, first_column, a.width);
    }
  }

  __device__ __forceinline__ void run(const UpProblem& a, const Output& output,
                                      const TensorMap* token_map, const TensorMap* weight_map) {
    extern __shared__ uint4 shared[];
    const u32 ring = (shared_address(shared) + 1023) & ~1023u;
    Base::init(ring, ring + kBarriers, a.columns);
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    const u32 column_tiles = a.width / 64;
    const u32 work = *a.tile_count * column_tiles;
    if (threadIdx.x < 128) {  // the producer warpgroup
      warpgroup_reg_dealloc<kBlocksPerSm == 1 ? 40 : 24>();
      if (threadIdx.x != 0) return;
      prefetch_tensormap(token_map);
      prefetch_tensormap(weight_map);
      for (u32 i = blockIdx.x; i < work; i += gridDim.x) {
        const MoeTile tile = a.tiles[i / column_tiles];
        Base::produce(token_map, weight_map, tile.first,
                      boxes_of(a, tile, i % column_tiles * 64, Base::k_atoms));
      }
      return;
    }
    warpgroup_reg_alloc<kBlocksPerSm == 1 ? 232 : 104>();
    const SwiGlu activate = SwiGlu::of(a.limit, a.alpha, a.beta);
    for (u32 i = blockIdx.x; i < work; i += gridDim.x) {
      const MoeTile tile = a.tiles[i / column_tiles];
      const u32 first_column = i % column_tiles * 64;
      const WeightBoxes weights = boxes_of(a, tile, first_column, Base::k_atoms);
      if (tile.count <= kTokens / 2) {  // fewer of the MMA's columns suffice
        compute_tile<kTokens / 2>(a, output, tile, first_column, weights, activate);
      } else if (tile.count <= kTokens / 4 * 3) {
        compute_tile<kTokens / 4 * 3>(a, output, tile, first_column, weights, activate);
      } else {
        compute_tile<kTokens>(a, output, tile, first_column, weights, activate);
      }
    }
  }
};

struct DownProblem {
  const MoeTile* tiles;
  const u32* tile_count;
  const u8* weight_scales;
  const float* weight_decode;
  u32 columns;
  u32 width;
};

template <class Output, u32 kTokens, u32 kStages, u32 kBlocksPerSm>
struct DownGemm : WarpgroupGemm<typename Output::Operands, kTokens, kStages> {
  using Base = WarpgroupGemm<typename Output::Operands, kTokens, kStages>;
  static constexpr u32 kResults = Base::kRingBytes;
  static constexpr u32 kBarriers = kResults + kTokens * Output::kResultPitch;
  static constexpr u32 kSharedBytes = 1024 + kBarriers + 16 * kStages;

  static __device__ __forceinline__ WeightBoxes boxes_of(const DownProblem& a, const MoeTile& tile,
                                                         u32 first_row, u32 k_atoms) {
    const u32 row = tile.expert * a.columns + first_row;
    const u8* const scales = a.weight_scales + tile.expert * padded_scale_bytes(a.columns, a.width) +
                             static_cast<u64>(first_row / kAtomRows) * k_atoms * kAtomBytes;
    return {{row, row + 64}, {scales, scales}, {0, 64}};
  }

  template <u32 kColumns>
  __device__ __forceinline__ void compute_tile(const DownProblem& a, const Output& output,
                                               const MoeTile& tile, u32 first_row,
                                               const WeightBoxes& weights) {
    const u32 lane = threadIdx.x & 31;
    const u32 row = (threadIdx.x - 128) / 32 * 16 + (lane >> 2);
    const u32 rows[2] = {row, row + 8};
    float sum[kColumns / 2];
    Base::template consume<kColumns>(sum, rows, weights);
    output.template store<kColumns>(sum, output.alpha(a.weight_decode[tile.expert]),
                                    Base::base + kResults, rows, tile, first_row, a.columns);
  }

  __device__ __forceinline__ void run(const DownProblem& a, const Output& output,
                                      const TensorMap* token_map, const TensorMap* weight_map) {
    extern __shared__ uint4 shared[];
    const u32 ring = (shared_address(shared) + 1023) & ~1023u;
    Base::init(ring, ring + kBarriers, a.width);
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    const u32 row_tiles = (a.columns + 127) / 128;
    const u32 work = *a.tile_count * row_tiles;
    if (threadIdx.x < 128) {  // the producer warpgroup
      warpgroup_reg_dealloc<kBlocksPerSm == 1 ? 40 : 24>();
      if (threadIdx.x != 0) return;
      prefetch_tensormap(token_map);
      prefetch_tensormap(weight_map);
      for (u32 i = blockIdx.x; i < work; i += gridDim.x) {
        const MoeTile tile = a.tiles[i / row_tiles];
        Base::produce(token_map, weight_map, tile.first,
                      boxes_of(a, tile, i % row_tiles * 128, Base::k_atoms));
      }
      return;
    }
    warpgroup_reg_alloc<kBlocksPerSm == 1 ? 232 : 104>();
    for (u32 i = blockIdx.x; i < work; i += gridDim.x) {
      const MoeTile tile = a.tiles[i / row_tiles];
      const u32 first_row = i % row_tiles * 128;
      const WeightBoxes weights = boxes_of(a, tile, first_row, Base::k_atoms);
      if (tile.count <= kTokens / 2) {  // half of the MMA's columns suffice
        compute_tile<kTokens / 2>(a, output, tile, first_row, weights);
      } else {
        compute_tile<kTokens>(a, output, tile, first_row, weights);
      }
    }
  }
};

constexpr u32 kMoeTokens = CUKILN_MOE_TOKENS;

}  // namespace nvfp4
}  // namespace cukiln
