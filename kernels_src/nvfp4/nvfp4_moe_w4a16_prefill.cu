// The two GEMMs of a mixture of experts with tokens in bf16 (W4A16) for many tokens an expert, on sm_90a: what
// moe_w4a16_up and moe_w4a16_down of nvfp4_moe_w4a16.cu compute, with larger tiles and wgmma.
//
// moe_w4a16_gather
//   What: copies rows of hidden: row p is token slots[p] / topk, K permuted to the MMA's lanes and zero-padded
//     to a multiple of 128.
//   Shapes: output bf16 [rows, columns rounded up to 128]; rows from *row_count on are not written.
//   Launch: block (256, 1, 1), any grid.
//
// moe_w4a16_prefill_up, moe_w4a16_prefill_down
//   What: as moe_w4a16_up, with y in the order of moe_w4a16_gather's output, and as moe_w4a16_down, with one
//     split and results rounded to bf16; for tiles of T = CUKILN_MOE_TOKENS = 64 or 128.
//   Shapes: token_map: tensor map of moe_w4a16_gather's output or of y, bf16 {columns rounded up to 128,
//     slots}, box as of moe_prefill_up, 128-byte swizzle; weight_map: as of moe_prefill_up. output bf16 [positions,
//     columns].
//   Limits, launch: as moe_prefill_up.
//
// With other targets the module has moe_w4a16_gather alone.
// Alignment, NaN, determinism, source: as nvfp4_moe_w4a16.cu; NVIDIA PTX ISA, wgmma and cp.async.bulk.
#include "dependent_launch.cuh"
#include "gemm_sm90_dequantize.cuh"
#include "machine.cuh"
#include "moe_prefill_signatures.cuh"
#include "moe_tiles.cuh"

#ifndef CUKILN_MOE_TOKENS
#define CUKILN_MOE_TOKENS 128
#endif

namespace cukiln {
namespace nvfp4 {

constexpr u32 kGatherThreads = 256;

// Transposes 4 by 4 words: word j of lane t of four consecutive lanes becomes word t of lane j.
__device__ __forceinline__ void transpose_in_quad(u32 (&words)[4]) {
#pragma unroll
  for (u32 step = 1; step < 4; step *= 2) {
    const bool upper = (threadIdx.x & step) != 0;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      const u32 received = __shfl_xor_sync(~0u, upper ? words[i] : words[i + step], step);
      if (upper) {
        words[i] = received;
      } else {
        words[i + step] = received;
      }
    }
  }
}

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kGatherThreads)
    moe_w4a16_gather(cukiln::bf16* output, const cukiln::bf16* hidden, const cukiln::u32* slots,
                     const cukiln::u32* row_count, cukiln::u32 topk, cukiln::u32 columns) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  // Sixteen lanes make a group of 128 columns: lane 4 * w + t loads word w of the MMA's lane t, eight
  // elements, and stores what MMAs 2 * w and 2 * w + 1 read together.
  const u32 groups = (columns + kGroupK - 1) / kGroupK;
  const u64 items = static_cast<u64>(*row_count) * groups * 16;
  const u32 lane = threadIdx.x & 31;
  for (u64 first = static_cast<u64>(blockIdx.x) * kGatherThreads + threadIdx.x - lane; first < items;
       first += static_cast<u64>(gridDim.x) * kGatherThreads) {
    const u64 item = first + lane;
    const u32 column = item / 16 % groups * kGroupK + (item & 3) * kLaneK + (item >> 2 & 3) * 8;
    uint4 eight = {0, 0, 0, 0};
    if (item < items && column < columns) {
      const u32 row = slots[item / 16 / groups] / topk;
      eight = *reinterpret_cast<const uint4*>(hidden + static_cast<u64>(row) * columns + column);
    }
    u32 pairs[4];
    Bf16::arrange(eight, pairs);
    transpose_in_quad(pairs);
    if (item < items) reinterpret_cast<uint4*>(output)[item] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}
static_assert(cukiln::kIsSame<decltype(moe_w4a16_gather), cukiln::signatures::MoeW4a16Gather>);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#include "moe_many_tokens.cuh"

namespace cukiln {
namespace nvfp4 {

// y in bf16, as the second GEMM's tokens.
struct Bf16Output {
  using Operands = Bf16;
  bf16* y;

  __device__ __forceinline__ Bf16Alpha alpha(float weight_decode) const {
    return Bf16Alpha(weight_decode);
  }

  // Stores 16 columns of a position: words `quarter` of two of the MMA's lanes, whose 32 results each are in
  // shared memory. Those of the other two lanes are another tile's, or zeros beyond the last.
  __device__ __forceinline__ void store(u32 results, u32 position, u32 quarter, u32 first_column,
                                        u32 width) const {
    u32 even[4];
    u32 odd[4];
    Bf16::arrange(load_shared(results + quarter * 16), even);
    Bf16::arrange(load_shared(results + (32 + quarter * 8) * 2), odd);
    const u32 group = first_column / kGroupK;
    const u32 half = first_column % kGroupK / 64;
    const u64 row = static_cast<u64>(position) * ((width + kGroupK - 1) / kGroupK);
    uint2* const to = reinterpret_cast<uint2*>(y + (row + group) * kGroupK + quarter * 32) + half;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
      to[2 * j] = {even[j], odd[j]};
      if (half == 0 && first_column + 64 == width) to[2 * j + 1] = {0, 0};
    }
  }
};

// Results of the second GEMM.
struct Bf16Rows {
  using Operands = Bf16;
  bf16* rows;

  __device__ __forceinline__ Bf16Alpha alpha(float weight_decode) const {
    return Bf16Alpha(weight_decode);
  }
  __device__ __forceinline__ Bf16Alpha alpha_of_row(const Bf16Alpha& alpha, u32) const { return alpha; }
};

using MoeUp = MoeTileGemm<UpStep, Bf16Output>;
using MoeDown = MoeTileGemm<DownStep, Bf16Rows>;
static_assert(MoeUp::kSharedBytes <= kMoeSharedBytes && MoeDown::kSharedBytes <= kMoeSharedBytes);

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::MoeUp::kThreads, 1)
    moe_w4a16_prefill_up(cukiln::bf16* y, const cukiln::nvfp4::MoeTile* tiles,
                         const cukiln::u32* tile_count,
                         const __grid_constant__ cukiln::TensorMap token_map,
                         const __grid_constant__ cukiln::TensorMap weight_map,
                         const cukiln::u8* weight_scales, const float* weight_decode,
                         const cukiln::bf16* bias, cukiln::u32 columns, cukiln::u32 width,
                         cukiln::u32 layout, float limit, float alpha, float beta) {
  cukiln::nvfp4::MoeUp().run(
      {{tiles, tile_count, weight_scales, weight_decode, bias, width, columns}, layout, limit, alpha, beta},
      {y}, &token_map, &weight_map);
}
static_assert(cukiln::kIsSame<decltype(moe_w4a16_prefill_up), cukiln::signatures::MoeW4a16PrefillUp>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::MoeDown::kThreads, 1)
    moe_w4a16_prefill_down(cukiln::bf16* output, const cukiln::nvfp4::MoeTile* tiles,
                           const cukiln::u32* tile_count,
                           const __grid_constant__ cukiln::TensorMap token_map,
                           const __grid_constant__ cukiln::TensorMap weight_map,
                           const cukiln::u8* weight_scales, const float* weight_decode,
                           const cukiln::bf16* bias, cukiln::u32 columns, cukiln::u32 width) {
  cukiln::nvfp4::MoeDown().run({tiles, tile_count, weight_scales, weight_decode, bias, columns, width},
                               {output}, &token_map, &weight_map);
}
static_assert(cukiln::kIsSame<decltype(moe_w4a16_prefill_down),
                              cukiln::signatures::MoeW4a16PrefillDown>);

#endif
