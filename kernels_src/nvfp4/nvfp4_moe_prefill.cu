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
//   What: as moe_up, y in bf16 without global_scale, and as moe_down with one split and results rounded to bf16; for tiles of T =
//     CUKILN_MOE_TOKENS = 64 or 128.
//   Shapes: token_map: tensor map of moe_expand's output, fp16 {columns rounded up to 128, slots}, box {64,
//     32}, or {64, 128} with T = 128, 128-byte swizzle; weight_map: tensor map of all experts' packed data,
//     uint8 {columns / 2, rows of all experts}, box {64, 128}, or {64, 64} with T = 128, no swizzle. output bf16
//     [positions, columns].
//   Limits: width a multiple of 64; fewer than 2^32 rows of weights in all experts.
//   Launch: block (640, 1, 1) with T = 64, (384, 1, 1) with 128; any grid, persistent; one thread block fits an
//     SM. Dynamic shared memory: 219216 bytes with T = 64, 207936 with 128.
//
// With other targets the module has moe_expand alone.
// Alignment, NaN, determinism, source: as nvfp4_moe_gemm.cu; NVIDIA PTX ISA, wgmma and cp.async.bulk.
#include "dependent_launch.cuh"
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
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
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

#include "moe_many_tokens.cuh"

namespace cukiln {
namespace nvfp4 {

// y in NVFP4, or without a global scale in bf16.
struct Nvfp4Output {
  using Operands = F16;
  u8* data;
  u8* scales;
  const float* token_global_scale;
  const float* global_scale;

  __device__ __forceinline__ Nvfp4Alpha alpha(float weight_decode) const {
    return Nvfp4Alpha(token_global_scale, weight_decode);
  }

  // Stores 16 columns of a position: quarter `quarter` of its 64 results in shared memory.
  __device__ __forceinline__ void store(u32 results, u32 position, u32 quarter, u32 first_column,
                                        u32 width) const {
    const uint4 low = load_shared(results + quarter * 32);
    const uint4 high = load_shared(results + quarter * 32 + 16);
    const u64 at = static_cast<u64>(position) * width + first_column + quarter * 16;
    if (global_scale == nullptr) {
      uint4* const to = reinterpret_cast<uint4*>(reinterpret_cast<bf16*>(data) + at);
      to[0] = low;
      to[1] = high;
      return;
    }
    const u32 pairs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    uint2 packed;
    const u32 scale_byte = quantize_block(pairs, block_scale_factor(global_scale[kEncode]),
                                          global_scale[kDecode], &packed);
    *reinterpret_cast<uint2*>(data + at / 2) = packed;
    scales[at / 16] = static_cast<u8>(scale_byte);
  }
};

// Results of the second GEMM.
struct Nvfp4Rows {
  using Operands = F16;
  bf16* rows;
  const float* token_global_scale;
  const float* row_decode;

  __device__ __forceinline__ Nvfp4Alpha alpha(float weight_decode) const {
    return Nvfp4Alpha(token_global_scale, weight_decode);
  }
  __device__ __forceinline__ Nvfp4Alpha alpha_of_row(const Nvfp4Alpha& alpha, u32 row) const {
    return alpha.of_row(row_decode, row);
  }
};

using MoeUp = MoeTileGemm<UpStep, Nvfp4Output>;
using MoeDown = MoeTileGemm<DownStep, Nvfp4Rows>;
static_assert(MoeUp::kSharedBytes <= kMoeSharedBytes && MoeDown::kSharedBytes <= kMoeSharedBytes);

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::MoeUp::kThreads, 1)
    moe_prefill_up(cukiln::u8* data, cukiln::u8* scales, const cukiln::nvfp4::MoeTile* tiles,
                   const cukiln::u32* tile_count,
                   const __grid_constant__ cukiln::TensorMap token_map, const float* token_global_scale,
                   const __grid_constant__ cukiln::TensorMap weight_map,
                   const cukiln::u8* weight_scales, const float* weight_decode, const cukiln::bf16* bias,
                   const float* global_scale, cukiln::u32 columns, cukiln::u32 width,
                   cukiln::u32 layout, float limit, float alpha, float beta) {
  cukiln::nvfp4::MoeUp().run(
      {{tiles, tile_count, weight_scales, weight_decode, bias, width, columns}, layout, limit, alpha, beta},
      {data, scales, token_global_scale, global_scale}, &token_map, &weight_map);
}
static_assert(cukiln::kIsSame<decltype(moe_prefill_up), cukiln::signatures::MoePrefillUp>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::MoeDown::kThreads, 1)
    moe_prefill_down(cukiln::bf16* output, const cukiln::nvfp4::MoeTile* tiles,
                     const cukiln::u32* tile_count,
                     const __grid_constant__ cukiln::TensorMap token_map, const float* token_global_scale,
                     const float* row_decode, const __grid_constant__ cukiln::TensorMap weight_map,
                     const cukiln::u8* weight_scales, const float* weight_decode,
                     const cukiln::bf16* bias, cukiln::u32 columns, cukiln::u32 width) {
  cukiln::nvfp4::MoeDown().run({tiles, tile_count, weight_scales, weight_decode, bias, columns, width},
                               {output, token_global_scale, row_decode}, &token_map, &weight_map);
}
static_assert(cukiln::kIsSame<decltype(moe_prefill_down), cukiln::signatures::MoePrefillDown>);

#endif
