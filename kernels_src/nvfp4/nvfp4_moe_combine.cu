// The last step of a mixture of experts, from experts' results to tokens: moe_combine.
//
//   What: output[token] = bf16(sum of topk_weights[slot] * partial[s][position of slot]) over the
//     splits s and, within each, the valid slots of the token, in this order, by float FMAs. What a
//     slot and its position are: moe_tiles.cuh.
//   Shapes: output bf16 [tokens, columns], topk_weights float [tokens, topk], positions int32
//     [tokens, topk], -1 for a slot that is not valid, partial float [splits, tokens * topk, columns].
//   Limits: columns a multiple of 4. Launch: block (256, 1, 1), grid (tokens, ceil(columns / 1024), 1).
//
// Alignment: 16 bytes for output and partial.
#include "nvfp4_numerics.cuh"

constexpr unsigned kCombineThreads = 256;

extern "C" __global__ void __launch_bounds__(kCombineThreads)
    moe_combine(cukiln::u16* output, const float* partial, const float* topk_weights,
                const int* positions, cukiln::u32 topk, cukiln::u32 columns, cukiln::u32 splits) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const u32 token = blockIdx.x;
  const u32 column = (blockIdx.y * kCombineThreads + threadIdx.x) * 4;
  if (column >= columns) return;
  float4 sum = {0, 0, 0, 0};
  for (u32 split = 0; split < splits; ++split) {
    // Loads without branches, so that several slots are in flight.
#pragma unroll 8
    for (u32 rank = 0; rank < topk; ++rank) {
      const u32 slot = token * topk + rank;
      const int position = positions[slot];
      const bool valid = position >= 0;
      const u64 row = static_cast<u64>(split) * gridDim.x * topk + (valid ? position : 0);
      const float weight = valid ? topk_weights[slot] : 0.0f;
      float4 value = {0, 0, 0, 0};
      if (valid) value = *reinterpret_cast<const float4*>(partial + row * columns + column);
      sum.x = __fmaf_rn(weight, value.x, sum.x);
      sum.y = __fmaf_rn(weight, value.y, sum.y);
      sum.z = __fmaf_rn(weight, value.z, sum.z);
      sum.w = __fmaf_rn(weight, value.w, sum.w);
    }
  }
  uint2 rounded;
  rounded.x = pack_bf16x2(sum.x, sum.y);
  rounded.y = pack_bf16x2(sum.z, sum.w);
  *reinterpret_cast<uint2*>(output + static_cast<u64>(token) * columns + column) = rounded;
}
