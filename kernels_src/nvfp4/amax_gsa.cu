// amax_gsa: the global scale of a bf16 tensor, in one launch.
//
// What: amax = max |x|; gsa = {encode, decode}, encode = min(2688 / amax, FLT_MAX),
//   decode = 1 / encode. Both are 1 when amax is 0.
// Shapes: input bf16 [rows, columns], row_stride elements from row to row; gsa two floats.
// Alignment: input 2 bytes, gsa 4. Stretches that start on 16 bytes are read by vectors.
// Limits: rows * ceil(columns / 1024) below 2^32, or rows * columns below 2^42 if dense. An empty
//   tensor has amax 0.
// NaN and inf: any NaN makes both scales NaN, so that every product scaled by them shows it. An
//   infinity without a NaN makes both 1, as TransformerEngine does; quantisers then saturate it.
// Launch: block (512, 1, 1); grid (any, 1, 1). A warp reads 1024 elements at a time, so a thread
//   block has work for each 16384 elements. No dynamic shared memory.
// Workspace: two 32-bit words {amax bits, ticket}, zeroed once by the caller; the last thread block
//   to finish zeroes them again. One workspace a stream: launches that share one must not overlap.
// Determinism: an integer maximum; neither the grid nor the order of thread blocks matters.
// Source: TransformerEngine, NVFP4 recipe, for the scale.
#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kAmaxThreads = 512;
constexpr u32 kAmaxWarps = kAmaxThreads / 32;
constexpr u32 kSegmentElements = 1024;
constexpr u32 kVectorElements = 8;

__device__ __forceinline__ u32 max_magnitude(u32 magnitudes, uint4 vector) {
  magnitudes = max_magnitude_bf16x2(magnitudes, vector.x);
  magnitudes = max_magnitude_bf16x2(magnitudes, vector.y);
  magnitudes = max_magnitude_bf16x2(magnitudes, vector.z);
  return max_magnitude_bf16x2(magnitudes, vector.w);
}

// One warp's share of `count` <= kSegmentElements elements.
__device__ __forceinline__ u32 segment_magnitudes(const u16* segment, u32 count, u32 lane) {
  u32 magnitudes = 0;
  u32 done = 0;
  if ((reinterpret_cast<u64>(segment) & 15u) == 0) {
    const uint4* vectors = reinterpret_cast<const uint4*>(segment);
    if (count == kSegmentElements) {
      uint4 loaded[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) loaded[i] = __ldg(vectors + i * 32 + lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) magnitudes = max_magnitude(magnitudes, loaded[i]);
      return magnitudes;
    }
    const u32 vector_count = count / kVectorElements;
    for (u32 i = lane; i < vector_count; i += 32) {
      magnitudes = max_magnitude(magnitudes, __ldg(vectors + i));
    }
    done = vector_count * kVectorElements;
  }
  for (u32 i = done + lane; i < count; i += 32) {
    magnitudes = max_magnitude_bf16x2(magnitudes, __ldg(segment + i));
  }
  return magnitudes;
}

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kAmaxThreads)
    amax_gsa(float* gsa, const cukiln::u16* input, cukiln::u32 rows, cukiln::u32 columns,
             cukiln::i64 row_stride, cukiln::u32* workspace) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;

  // A dense tensor is one long row.
  const bool dense = row_stride == static_cast<i64>(columns);
  const u64 row_elements = dense ? static_cast<u64>(rows) * columns : columns;
  const u64 row_count = dense ? 1 : rows;
  const u32 segments_per_row =
      static_cast<u32>((row_elements + kSegmentElements - 1) / kSegmentElements);
  const u64 segments = row_count * segments_per_row;

  u32 magnitudes = 0;
  for (u64 segment = u64{blockIdx.x} * kAmaxWarps + warp; segment < segments;
       segment += u64{gridDim.x} * kAmaxWarps) {
    const u32 row = static_cast<u32>(segment) / segments_per_row;
    const u64 start = (segment - u64{row} * segments_per_row) * kSegmentElements;
    const u32 count = static_cast<u32>(min(row_elements - start, u64{kSegmentElements}));
    const u16* first = input + row * row_stride + start;
    magnitudes = max_magnitude_bf16x2(magnitudes, segment_magnitudes(first, count, lane));
  }

  __shared__ u32 warp_amax[kAmaxWarps];
  const u32 bits = __reduce_max_sync(~0u, max(magnitudes & 0xFFFF0000u, magnitudes << 16));
  if (lane == 0) warp_amax[warp] = bits;
  __syncthreads();
  if (warp != 0) return;
  const u32 block_amax = __reduce_max_sync(~0u, lane < kAmaxWarps ? warp_amax[lane] : 0u);
  if (lane != 0) return;

  atomicMax(&workspace[0], block_amax);
  __threadfence();
  if (atomicInc(&workspace[1], gridDim.x - 1) != gridDim.x - 1) return;
  // The ticket wrapped to 0: every other block's maximum is in.
  __threadfence();
  const GlobalScale scale = global_scale_of(__uint_as_float(atomicExch(&workspace[0], 0u)));
  gsa[0] = scale.encode;
  gsa[1] = scale.decode;
}
