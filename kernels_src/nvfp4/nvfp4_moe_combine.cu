// The last step of a mixture of experts: the weighted sum of the experts' results for each token.
//
// moe_combine
//   What: output[token] = bf16(sum of topk_weights[slot] * partial[s][position of slot]), over splits s and
//     within each over the token's valid slots, in this order, by float FMAs. Slots and positions:
//     moe_tiles.cuh.
//   Shapes: output bf16 [tokens, columns], topk_weights float [tokens, topk], positions int32
//     [tokens, topk], -1 for a slot that is not valid, partial float [splits, tokens * topk, columns].
//   Limits: columns a multiple of 4. Launch: block (256, 1, 1), grid (tokens, ceil(columns / 1024), 1).
//
// moe_combine_rows
//   What: output[token] = bf16(sum of topk_weights[slot] * gemm_output[rows[slot]]), over the token's slots
//     that have a row, in order, by float FMAs.
//   Shapes: gemm_output bf16 [rows, columns]; output bf16 [tokens, columns].
//   Limits: columns a multiple of 8. Launch: block (256, 1, 1), grid (tokens, ceil(columns / 2048), 1).
//
// Alignment: 16 bytes for output, partial and gemm_output.
#include "dependent_launch.cuh"
#include "moe_signatures.cuh"
#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kCombineThreads = 256;

__device__ __forceinline__ float fma_rn(float a, float b, float c) {
  float sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kCombineThreads)
    moe_combine(cukiln::u16* output, const float* partial, const float* topk_weights,
                const int* positions, cukiln::u32 topk, cukiln::u32 columns, cukiln::u32 splits) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const u32 token = blockIdx.x;
  const u32 column = (blockIdx.y * kCombineThreads + threadIdx.x) * 4;
  if (column >= columns) return;
  float4 sum = {0, 0, 0, 0};
  for (u32 split = 0; split < splits; ++split) {
    // Predicated loads instead of branches, so that those of several slots are in flight.
#pragma unroll 8
    for (u32 rank = 0; rank < topk; ++rank) {
      const u32 slot = token * topk + rank;
      const int position = positions[slot];
      const bool valid = position >= 0;
      const u64 row = static_cast<u64>(split) * gridDim.x * topk + (valid ? position : 0);
      const float weight = valid ? topk_weights[slot] : 0.0f;
      float4 value = {0, 0, 0, 0};
      if (valid) value = *reinterpret_cast<const float4*>(partial + row * columns + column);
      sum.x = fma_rn(weight, value.x, sum.x);
      sum.y = fma_rn(weight, value.y, sum.y);
      sum.z = fma_rn(weight, value.z, sum.z);
      sum.w = fma_rn(weight, value.w, sum.w);
    }
  }
  uint2 rounded;
  rounded.x = pack_bf16x2(sum.x, sum.y);
  rounded.y = pack_bf16x2(sum.z, sum.w);
  *reinterpret_cast<uint2*>(output + static_cast<u64>(token) * columns + column) = rounded;
}
static_assert(cukiln::kIsSame<decltype(moe_combine), cukiln::signatures::MoeCombine>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kCombineThreads)
    moe_combine_rows(cukiln::u16* output, const cukiln::u16* gemm_output, const float* topk_weights,
                     const int* rows, cukiln::u32 topk, cukiln::u32 columns) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const u32 token = blockIdx.x;
  const u32 column = (blockIdx.y * kCombineThreads + threadIdx.x) * 8;
  if (column >= columns) return;
  float sum[8] = {};
  // Predicated loads instead of branches, so that those of several slots are in flight.
#pragma unroll 4
  for (u32 rank = 0; rank < topk; ++rank) {
    const u32 slot = token * topk + rank;
    const int row = rows[slot];
    const bool valid = row >= 0;
    const float weight = valid ? topk_weights[slot] : 0.0f;
    uint4 value = {0, 0, 0, 0};
    if (valid) {
      value = *reinterpret_cast<const uint4*>(gemm_output + static_cast<u64>(row) * columns + column);
    }
    const u32 pairs[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      sum[2 * i] = fma_rn(weight, low_bf16(pairs[i]), sum[2 * i]);
      sum[2 * i + 1] = fma_rn(weight, high_bf16(pairs[i]), sum[2 * i + 1]);
    }
  }
  uint4 rounded;
  rounded.x = pack_bf16x2(sum[0], sum[1]);
  rounded.y = pack_bf16x2(sum[2], sum[3]);
  rounded.z = pack_bf16x2(sum[4], sum[5]);
  rounded.w = pack_bf16x2(sum[6], sum[7]);
  *reinterpret_cast<uint4*>(output + static_cast<u64>(token) * columns + column) = rounded;
}
static_assert(cukiln::kIsSame<decltype(moe_combine_rows), cukiln::signatures::MoeCombineRows>);
