// amax_gsa: the NVFP4 global scale of a bf16 tensor, in one launch.
// amax_gsa_by_row: the same, and the amax of each row.
//
// What: amax = max |x|; global_scale = {encode, decode}, encode = min(divisor / amax, FLT_MAX),
//   decode = 1 / encode. Both are 1 when amax is 0. row_amax[r] = max |x| of row r.
// Shapes: input bf16 [rows, columns], row_stride in elements; global_scale two floats; row_amax
//   f32 [rows].
// Alignment: input 2 bytes, global_scale and row_amax 4. Segments that start on 16 bytes are read by
//   16-byte vectors.
// Limits: rows * ceil(columns / 1024) below 2^31, or rows * columns below 2^41 if dense. An empty
//   tensor has amax 0. Both sizes below 2^31. divisor from 1 to 2688, the largest value that a block scale
//   times an element can be.
// NaN and inf: any NaN makes both scales NaN, so that every GEMM scaled by them returns NaN. An
//   infinity without a NaN makes both 1, as TransformerEngine does; quantisers then saturate it.
//   row_amax is NaN for a row with a NaN, else infinite for one with an infinity.
// Launch: block (512, 1, 1), any grid.x. A warp reads a segment of 1024 elements at a time
//   (amax_gsa_by_row: a row), so a thread block has work for each 16384 elements (16 rows). No dynamic
//   shared memory. Supports programmatic dependent launch.
// Workspace: a 32-bit word for each thread block, zeroed once by the caller and left zero by every launch.
//   One workspace for each stream: overlapping launches that share one may trap after some ten seconds, or
//   write a wrong scale.
// Determinism: an integer maximum; neither the grid nor the order of thread blocks matters.
// Source: TransformerEngine, NVFP4 recipe, for the scale.
#include "amax.cuh"
#include "dependent_launch.cuh"
#include "quantize_signatures.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kAmaxBlocksPerSm = 4;  // 2048 threads, all that an SM holds
constexpr u32 kSegmentElements = 1024;
constexpr u32 kVectorElements = 8;
constexpr u32 kLineElements = 64;
// Of a warp's first segment. More takes bandwidth from the preceding kernel, which still runs.
constexpr u32 kPrefetchLines = 4;

__device__ __forceinline__ u32 max_magnitude(u32 magnitudes, uint4 vector) {
  magnitudes = max_magnitude_bf16x2(magnitudes, vector.x);
  magnitudes = max_magnitude_bf16x2(magnitudes, vector.y);
  magnitudes = max_magnitude_bf16x2(magnitudes, vector.z);
  return max_magnitude_bf16x2(magnitudes, vector.w);
}

// The elements that a warp reduces at a time: `count` <= kSegmentElements.
struct Segment {
  const u16* first;
  u32 count;

  __device__ __forceinline__ void prefetch(u32 lane) const {
    const u32 element = lane * kLineElements;
    if (lane < kPrefetchLines && element < count) prefetch_l2(first + element);
  }

  __device__ __forceinline__ u32 magnitudes(u32 lane) const {
    u32 magnitudes = 0;
    u32 done = 0;
    if ((reinterpret_cast<u64>(first) & 15u) == 0) {
      const uint4* vectors = reinterpret_cast<const uint4*>(first);
      if (count == kSegmentElements) {
        uint4 loaded[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) loaded[i] = vectors[i * 32 + lane];
#pragma unroll
        for (int i = 0; i < 4; ++i) magnitudes = max_magnitude(magnitudes, loaded[i]);
        return magnitudes;
      }
      const u32 vector_count = count / kVectorElements;
      for (u32 i = lane; i < vector_count; i += 32) {
        magnitudes = max_magnitude(magnitudes, vectors[i]);
      }
      done = vector_count * kVectorElements;
    }
    for (u32 i = done + lane; i < count; i += 32) {
      magnitudes = max_magnitude_bf16x2(magnitudes, first[i]);
    }
    return magnitudes;
  }
};

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kAmaxThreads,
                                             cukiln::nvfp4::kAmaxBlocksPerSm)
    amax_gsa(float* global_scale, const cukiln::u16* input, cukiln::u32 rows, cukiln::u32 columns,
             cukiln::i64 row_stride, cukiln::u32* workspace, float divisor) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;
  griddepcontrol_launch_dependents();

  // A dense tensor is treated as one long row.
  const bool dense = row_stride == static_cast<i64>(columns);
  const u64 row_elements = dense ? static_cast<u64>(rows) * columns : columns;
  const u64 row_count = dense ? 1 : rows;
  const u32 segments_per_row =
      static_cast<u32>((row_elements + kSegmentElements - 1) / kSegmentElements);
  const u32 segments = static_cast<u32>(row_count * segments_per_row);
  const auto segment_of = [&](u32 index) -> Segment {
    const u32 row = index / segments_per_row;
    const u64 start = u64{index - row * segments_per_row} * kSegmentElements;
    return {input + row * row_stride + start,
            static_cast<u32>(min(row_elements - start, u64{kSegmentElements}))};
  };

  u32 index = blockIdx.x * kAmaxWarps + warp;
  if (index < segments) segment_of(index).prefetch(lane);
  griddepcontrol_wait();
  u32 magnitudes = 0;
  for (; index < segments; index += gridDim.x * kAmaxWarps) {
    magnitudes = max_magnitude_bf16x2(magnitudes, segment_of(index).magnitudes(lane));
  }
  write_global_scale(global_scale, workspace, magnitudes, divisor);
}
static_assert(cukiln::kIsSame<decltype(amax_gsa), cukiln::signatures::AmaxGsa>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kAmaxThreads,
                                             cukiln::nvfp4::kAmaxBlocksPerSm)
    amax_gsa_by_row(float* global_scale, float* row_amax, const cukiln::u16* input, cukiln::u32 rows,
                    cukiln::u32 columns, cukiln::i64 row_stride, cukiln::u32* workspace,
                    float divisor) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;
  griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  u32 amax = 0;
  for (u32 row = blockIdx.x * kAmaxWarps + warp; row < rows; row += gridDim.x * kAmaxWarps) {
    u32 magnitudes = 0;
    for (u32 start = 0; start < columns; start += kSegmentElements) {
      const u32 count = min(columns - start, kSegmentElements);
      const Segment segment{input + static_cast<i64>(row) * row_stride + start, count};
      magnitudes = max_magnitude_bf16x2(magnitudes, segment.magnitudes(lane));
    }
    const u32 row_magnitude = __reduce_max_sync(~0u, larger_half(magnitudes));
    if (lane == 0) row_amax[row] = __uint_as_float(row_magnitude);
    amax = max(amax, row_magnitude);
  }
  write_global_scale(global_scale, workspace, amax, divisor);
}
static_assert(cukiln::kIsSame<decltype(amax_gsa_by_row), cukiln::signatures::AmaxGsaByRow>);
