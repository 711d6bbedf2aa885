// The two GEMMs of a mixture of experts for many tokens an expert, on sm_90a: what moe_up and moe_down of
// nvfp4_moe_gemm.cu compute, with larger tiles and wgmma.
//
// moe_expand
//   What: dequantises rows of packed data and linear block scales to fp16, exactly, times 2^-14; K permuted
//     to the MMA's lanes and zero-padded to a multiple of 128. Row p is token slots[p] / topk, or p itself
//     if slots is null.
//   Shapes: output fp16 [rows, columns rounded up to 128]; rows from *row_count on are not written.
//   Launch: block (256, 1, 1), any grid.
//
// moe_prefill_up, moe_prefill_down
//   What: as moe_up and moe_down with one split, for tiles of T = CUKILN_MOE_TOKENS = 64 or 128.
//   Shapes: token_map: tensor map of moe_expand's output, fp16 {columns rounded up to 128, slots}, box {64,
//     T}, 128-byte swizzle; weight_map: tensor map of all experts' packed data, uint8 {columns / 2, rows of
//     all experts}, box {64, 64}, no swizzle.
//   Limits: width a multiple of 64; fewer than 2^32 rows of weights in all experts.
//   Launch: block (384, 1, 1), any grid, persistent; one thread block fits an SM. Dynamic shared memory:
//     196720 bytes.
//
// With other targets the module has moe_expand alone.
// Alignment, NaN, determinism, source: as nvfp4_moe_gemm.cu; NVIDIA PTX ISA, wgmma and cp.async.bulk.
#include "gemm_sm90_dequantize.cuh"
#include "machine.cuh"
#include "moe_prefill_signatures.cuh"
#include "moe_tiles.cuh"

#ifndef CUKILN_MOE_TOKENS
#define CUKILN_MOE_TOKENS 128
#endif

extern "C" __global__ void __launch_bounds__(256)
    moe_expand(cukiln::u32* output, const cukiln::u8* data, const cukiln::u8* scales,
               const cukiln::u32* slots, const cukiln::u32* row_count, cukiln::u32 topk,
               cukiln::u32 columns) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const u32 groups = (columns + kGroupK - 1) / kGroupK;
  const u64 items = static_cast<u64>(*row_count) * groups * 16;
  for (u64 item = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; item < items;
       item += static_cast<u64>(gridDim.x) * blockDim.x) {
    const u32 chunk = item & 15;
    const u32 group = item / 16 % groups;
    const u32 position = item / 16 / groups;
    const u32 row = slots == nullptr ? position : __ldg(slots + position) / topk;
    const u64 first = static_cast<u64>(row) * columns + group * kGroupK;
    reinterpret_cast<uint4*>(output)[item] = expand_chunk(
        chunk, data + first / 2, [&](u32 block) { return scales + first / 16 + block; },
        columns - group * kGroupK);
  }
}
static_assert(cukiln::kIsSame<decltype(moe_expand), cukiln::signatures::MoeExpand>);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#include "moe_warpgroup.cuh"
#include "swiglu.cuh"

namespace cukiln {
namespace nvfp4 {

struct UpArguments {
  u8* data;
  u8* scales;
  const MoeTile* tiles;
  const u32* tile_count;
  const float* token_global_scale;
  const u8* weight_scales;
  const float* weight_decode;
  const float* global_scale;
  u32 columns;
  u32 width;
  u32 layout;
  float limit;
  float alpha;
  float beta;
};

template <u32 kTokens, u32 kStages>
struct UpGemm : WarpgroupGemm<kTokens, kStages> {
  using Base = WarpgroupGemm<kTokens, kStages>;
  static constexpr u32 kResultPitch = 64 * 2 + 16;  // bytes of a token's 64 bf16 results
  static constexpr u32 kResults = Base::kRingBytes;
  static constexpr u32 kBarriers = kResults + kTokens * kResultPitch;
  static constexpr u32 kSharedBytes = 1024 + kBarriers + 16 * kStages;

  static __device__ __forceinline__ WeightBoxes boxes_of(const UpArguments& a, const MoeTile& tile,
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

  // Computes, quantises and stores the SwiGLU of a tile. A thread has the gate and the up row of its
  // column.
  template <u32 kColumns>
  __device__ __forceinline__ void compute_tile(const UpArguments& a, const MoeTile& tile, u32 first_column,
                                               const WeightBoxes& weights, const SwiGlu& activate) {
    const u32 lane = threadIdx.x & 31;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 thread = threadIdx.x - 128;
    const u32 column = thread / 32 * 8 + g;
    const bool in_pairs = a.layout == kPairs;
    const u32 rows[2] = {in_pairs ? 2 * column : column, in_pairs ? 2 * column + 1 : 64 + column};
    const float token_scale = a.token_global_scale[kDecode] * kTwoTo14;
    const float weight_scale = a.weight_decode[tile.expert] * kTwoTo14;
    float sum[kColumns / 2];
    Base::template consume<kColumns>(sum, rows, weights);

    const u32 results = Base::base + kResults;
    asm volatile("bar.sync 1, 256;" ::: "memory");  // the previous tile's results have been read
#pragma unroll
    for (u32 j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        const float y = activate(mul_rn(mul_rn(sum[4 * j + i], token_scale), weight_scale),
                                 mul_rn(mul_rn(sum[4 * j + 2 + i], token_scale), weight_scale));
        asm volatile(
            "{\n\t"
            ".reg .b16 rounded;\n\t"
            "cvt.rn.bf16.f32 rounded, %1;\n\t"
            "st.shared.b16 [%0], rounded;\n\t"
            "}" ::"r"(results + (8 * j + 2 * t + i) * kResultPitch + column * 2),
            "f"(y)
            : "memory");
      }
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
    const float scale_factor = block_scale_factor(a.global_scale[kEncode]);
    const float decode = a.global_scale[kDecode];
    for (u32 i = thread; i < tile.count * 4; i += Base::kConsumerThreads) {
      const u32 from = results + i / 4 * kResultPitch + i % 4 * 32;
      const uint4 low = load_shared(from);
      const uint4 high = load_shared(from + 16);
      const u32 pairs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      uint2 packed;
      const u32 scale_byte = quantize_block(pairs, scale_factor, decode, &packed);
      const u64 at = static_cast<u64>(tile.first + i / 4) * a.width + first_column + i % 4 * 16;
      *reinterpret_cast<uint2*>(a.data + at / 2) = packed;
      a.scales[at / 16] = static_cast<u8>(scale_byte);
    }
  }

  __device__ __forceinline__ void run(const UpArguments& a, const TensorMap* token_map,
                                      const TensorMap* weight_map) {
    extern __shared__ uint4 shared[];
    const u32 ring = (shared_address(shared) + 1023) & ~1023u;
    Base::init(ring, ring + kBarriers, a.columns);
    const u32 column_tiles = a.width / 64;
    const u32 work = *a.tile_count * column_tiles;
    if (threadIdx.x < 128) {  // the producer warpgroup
      warpgroup_reg_dealloc<40>();
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
    warpgroup_reg_alloc<232>();
    const SwiGlu activate = SwiGlu::of(a.limit, a.alpha, a.beta);
    for (u32 i = blockIdx.x; i < work; i += gridDim.x) {
      const MoeTile tile = a.tiles[i / column_tiles];
      const u32 first_column = i % column_tiles * 64;
      const WeightBoxes weights = boxes_of(a, tile, first_column, Base::k_atoms);
      if (tile.count <= kTokens / 2) {  // half of the MMA's columns suffice
        compute_tile<kTokens / 2>(a, tile, first_column, weights, activate);
      } else {
        compute_tile<kTokens>(a, tile, first_column, weights, activate);
      }
    }
  }
};

struct DownArguments {
  float* partial;
  const MoeTile* tiles;
  const u32* tile_count;
  const float* token_global_scale;
  const u8* weight_scales;
  const float* weight_decode;
  u32 columns;
  u32 width;
};

template <u32 kTokens, u32 kStages>
struct DownGemm : WarpgroupGemm<kTokens, kStages> {
  using Base = WarpgroupGemm<kTokens, kStages>;
  static constexpr u32 kBarriers = Base::kRingBytes;
  static constexpr u32 kSharedBytes = 1024 + kBarriers + 16 * kStages;

  static __device__ __forceinline__ WeightBoxes boxes_of(const DownArguments& a,
                                                         const MoeTile& tile, u32 first_row,
                                                         u32 k_atoms) {
    const u32 row = tile.expert * a.columns + first_row;
    const u8* const scales = a.weight_scales + tile.expert * padded_scale_bytes(a.columns, a.width) +
                             static_cast<u64>(first_row / kAtomRows) * k_atoms * kAtomBytes;
    return {{row, row + 64}, {scales, scales}, {0, 64}};
  }

  template <u32 kColumns>
  __device__ __forceinline__ void compute_tile(const DownArguments& a, const MoeTile& tile, u32 first_row,
                                               const WeightBoxes& weights) {
    const u32 lane = threadIdx.x & 31;
    const u32 row = (threadIdx.x - 128) / 32 * 16 + (lane >> 2);
    const u32 rows[2] = {row, row + 8};
    const float token_scale = a.token_global_scale[kDecode] * kTwoTo14;
    const float weight_scale = a.weight_decode[tile.expert] * kTwoTo14;
    float sum[kColumns / 2];
    Base::template consume<kColumns>(sum, rows, weights);
    float* const to = a.partial + static_cast<u64>(tile.first) * a.columns + first_row;
#pragma unroll
    for (u32 j = 0; j < kColumns / 2; ++j) {
      const u32 token = j / 4 * 8 + (lane & 3) * 2 + j % 2;
      const u32 at = rows[j / 2 % 2];
      if (token < tile.count && first_row + at < a.columns) {
        to[static_cast<u64>(token) * a.columns + at] =
            mul_rn(mul_rn(sum[j], token_scale), weight_scale);
      }
    }
  }

  __device__ __forceinline__ void run(const DownArguments& a, const TensorMap* token_map,
                                      const TensorMap* weight_map) {
    extern __shared__ uint4 shared[];
    const u32 ring = (shared_address(shared) + 1023) & ~1023u;
    Base::init(ring, ring + kBarriers, a.width);
    const u32 row_tiles = (a.columns + 127) / 128;
    const u32 work = *a.tile_count * row_tiles;
    if (threadIdx.x < 128) {  // the producer warpgroup
      warpgroup_reg_dealloc<40>();
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
    warpgroup_reg_alloc<232>();
    for (u32 i = blockIdx.x; i < work; i += gridDim.x) {
      const MoeTile tile = a.tiles[i / row_tiles];
      const u32 first_row = i % row_tiles * 128;
      const WeightBoxes weights = boxes_of(a, tile, first_row, Base::k_atoms);
      if (tile.count <= kTokens / 2) {  // half of the MMA's columns suffice
        compute_tile<kTokens / 2>(a, tile, first_row, weights);
      } else {
        compute_tile<kTokens>(a, tile, first_row, weights);
      }
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln

namespace cukiln {
namespace nvfp4 {

// As many stages as fit in shared memory.
constexpr u32 kMoeTokens = CUKILN_MOE_TOKENS;
constexpr u32 kMoeStages = kMoeTokens == 128 ? 4 : 7;
using MoeUp = UpGemm<kMoeTokens, kMoeStages>;
using MoeDown = DownGemm<kMoeTokens, kMoeStages>;
static_assert(MoeUp::kSharedBytes <= 196720 && MoeDown::kSharedBytes <= 196720,
              "the launcher allocates this for each of these kernels");

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::MoeUp::kThreads, 1)
    moe_prefill_up(cukiln::u8* data, cukiln::u8* scales, const cukiln::nvfp4::MoeTile* tiles,
                   const cukiln::u32* tile_count,
                   const __grid_constant__ cukiln::TensorMap token_map, const float* token_global_scale,
                   const __grid_constant__ cukiln::TensorMap weight_map,
                   const cukiln::u8* weight_scales, const float* weight_decode, const float* global_scale,
                   cukiln::u32 columns, cukiln::u32 width, cukiln::u32 layout, float limit,
                   float alpha, float beta) {
  cukiln::nvfp4::MoeUp().run({data, scales, tiles, tile_count, token_global_scale, weight_scales,
                              weight_decode, global_scale, columns, width, layout, limit, alpha, beta},
                             &token_map, &weight_map);
}
static_assert(cukiln::kIsSame<decltype(moe_prefill_up), cukiln::signatures::MoePrefillUp>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::MoeDown::kThreads, 1)
    moe_prefill_down(float* partial, const cukiln::nvfp4::MoeTile* tiles,
                     const cukiln::u32* tile_count,
                     const __grid_constant__ cukiln::TensorMap token_map, const float* token_global_scale,
                     const __grid_constant__ cukiln::TensorMap weight_map,
                     const cukiln::u8* weight_scales, const float* weight_decode,
                     cukiln::u32 columns, cukiln::u32 width) {
  cukiln::nvfp4::MoeDown().run(
      {partial, tiles, tile_count, token_global_scale, weight_scales, weight_decode, columns, width},
      &token_map, &weight_map);
}
static_assert(cukiln::kIsSame<decltype(moe_prefill_down), cukiln::signatures::MoePrefillDown>);

#endif
