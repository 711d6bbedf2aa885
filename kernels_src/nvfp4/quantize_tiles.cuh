// The tile loop of the NVFP4 quantisers: bf16 rows in, packed E2M1 and swizzled UE4M3 scales out.
//
// Scale layout: rows padded to 128, blocks of 16 columns padded to 4; one atom of 512 bytes holds
// 128 rows by 4 blocks, and the byte of (row r, block b) lies at
//   ((r / 128) * ceil(columns / 64) + b / 4) * 512 + (r % 32) * 16 + (r / 32 % 4) * 4 + b % 4.
// A thread block of 512 threads fills one atom at a time and byte t of the atom belongs to thread
// t: a warp reads 8 rows by 128 bytes, and all it stores fills whole 32-byte sectors. The same
// threads write the padding bytes as 0.
//
// A source provides
//   void load(u32 row, u32 column, u32 (&pairs)[8])   16 bf16 from `column` on, low half = even
#pragma once

#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kQuantizeThreads = 512;
// Thread blocks that share a multiprocessor: all the threads it holds, unless registers would
// spill.
constexpr u32 kQuantizeResidentBlocks = __CUDA_ARCH__ >= 1000 ? 3 : 4;
constexpr u32 kAtomBytes = 512;
constexpr u32 kAtomRows = 128;
constexpr u32 kAtomColumns = 64;

// The formula, for a tensor. -DCUKILN_NVFP4_FAST takes vLLM's instead of the exact one, where
// reciprocals r(...) are the hardware's approximate ones: the scale byte is
// ue4m3_rn(encode * (block_amax * r(6))), the multiplier r(float(scale byte) * r(encode)). The limit
// of FLT_MAX and the rule for scale bytes 0 and NaN are the same.
struct TensorScale {
  float encode;
  float decode;

  __device__ __forceinline__ u32 scale_byte(float block_amax) const {
#if defined(CUKILN_NVFP4_FAST)
    return encode_ue4m3(mul_rn(encode, mul_rn(block_amax, rcp_approx(6.0f))));
#else
    return encode_ue4m3(mul_rn(block_amax, block_scale_factor(encode)));
#endif
  }

  __device__ __forceinline__ float multiplier(u32 scale_byte) const {
#if defined(CUKILN_NVFP4_FAST)
    return min_nan(rcp_approx(mul_rn(decode_ue4m3(scale_byte), rcp_approx(encode))), kFloatMax);
#else
    return element_multiplier(scale_byte, decode);
#endif
  }
};

// Quantises [rows, columns] as `source` delivers it. Blocks of kQuantizeThreads threads, any grid;
// block i takes the i-th of gridDim.x equal runs of consecutive atoms.
template <class Source>
__device__ __forceinline__ void quantize_tiles(u8* codes, u8* scales, const Source& source,
                                               u32 rows, u32 columns, const TensorScale& tensor) {
  const u32 atoms_per_row_tile = (columns + 63) / 64;
  const u32 atoms = (rows + kAtomRows - 1) / kAtomRows * atoms_per_row_tile;
  const u32 atoms_per_thread_block = (atoms + gridDim.x - 1) / gridDim.x;
  const u32 first = blockIdx.x * atoms_per_thread_block;
  const u32 last = min(first + atoms_per_thread_block, atoms);
  if (first >= last) return;

  // A multiplier costs a division, and there are 128 of them.
  __shared__ float multipliers[128];
  const u32 thread = threadIdx.x;
  if (thread < 128) multipliers[thread] = tensor.multiplier(thread);
  __syncthreads();

  const u32 row_in_tile = ((thread >> 2) & 3) * 32 + (thread >> 4);
  const u32 column_in_atom = (thread & 3) * kBlockColumns;
  u32 row = first / atoms_per_row_tile * kAtomRows + row_in_tile;
  u32 column = first % atoms_per_row_tile * kAtomColumns + column_in_atom;
  u8* scale = scales + static_cast<u64>(first) * kAtomBytes + thread;
#pragma unroll 1
  for (u32 atom = first; atom < last; ++atom, scale += kAtomBytes) {
    u32 scale_byte = 0;
    if (row < rows && column < columns) {
      u32 pairs[8];
      source.load(row, column, pairs);
      scale_byte = tensor.scale_byte(__uint_as_float(amax_of(pairs)));
      *reinterpret_cast<uint2*>(codes + (static_cast<u64>(row) * columns + column) / 2) =
          encode_block(pairs, scale_byte, multipliers[scale_byte]);
    }
    *scale = static_cast<u8>(scale_byte);
    column += kAtomColumns;
    if (column >= atoms_per_row_tile * kAtomColumns) {
      column = column_in_atom;
      row += kAtomRows;
    }
  }
}

// bf16 [rows, columns], `row_stride` elements from row to row.
struct RowSource {
  const u16* input;
  i64 row_stride;

  __device__ __forceinline__ void load(u32 row, u32 column, u32 (&pairs)[8]) const {
    load_16_bf16(input + row * row_stride + column, pairs);
  }
};

}  // namespace nvfp4
}  // namespace cukiln
