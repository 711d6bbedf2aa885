// The main loop of the NVFP4 quantisers: bf16 rows in, packed E2M1 data and swizzled UE4M3 scales out.
//
// A thread block of 512 threads makes one atom of scales (128 rows by 64 columns, scale_layout.cuh) at a
// time; thread t quantises the block of 16 columns whose scale is byte t of the atom. So a warp reads 8
// rows by 128 bytes, and its stores fill whole 32-byte sectors. The same threads write the padding bytes of
// the atom as 0.
//
// A Source loads the input:
//   Cursor at(u32 row, u32 column)      a position that moves from atom to atom along a row, and
//                                       what was loaded there:
//     load(), advance()                 load: 16 columns of the row, or the inputs to compute them from
//     prefetch()                        the same, into L2
//   take(cursor, u32 (&pairs)[8])       the 16 bf16 of what was loaded, low half = even column
//   kLoadsAhead                         true: a thread loads its next block before it quantises the current
//                                       one, which takes registers for both
#pragma once

#include "dependent_launch.cuh"
#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kQuantizeThreads = 512;
// Occupancy for __launch_bounds__: all 2048 threads of an SM, unless registers would spill.
constexpr u32 kQuantizeBlocksPerSm = __CUDA_ARCH__ >= 1000 ? 3 : 4;

// The quantisation formula with a tensor's global scale. -DCUKILN_NVFP4_FAST selects vLLM's formula instead
// of TransformerEngine's exact one; r(x) is the hardware's approximate reciprocal: scale byte =
// ue4m3_rn(encode * (block_amax * r(6))), multiplier = r(float(scale byte) * r(encode)). The limit FLT_MAX
// and the rule for scale bytes 0 and NaN are the same.
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

// Tabulates the multipliers of all 128 scale bytes in shared memory: each costs a division.
__device__ __forceinline__ void fill_multipliers(float (&multipliers)[128],
                                                 const TensorScale& tensor) {
  if (threadIdx.x < 128) multipliers[threadIdx.x] = tensor.multiplier(threadIdx.x);
  __syncthreads();
}

// The consecutive atoms of [rows, columns] that this thread block quantises: an equal share for each block
// of the grid, in order. Thread t has byte t of each atom.
struct AtomRange {
  u32 per_row_tile;
  u32 first;
  u32 last;

  __device__ __forceinline__ AtomRange(u32 rows, u32 columns)
      : per_row_tile(scale_atoms(columns)) {
    const u32 atoms = scale_atom_rows(rows) * per_row_tile;
    const u32 per_thread_block = (atoms + gridDim.x - 1) / gridDim.x;
    first = blockIdx.x * per_thread_block;
    last = min(first + per_thread_block, atoms);
  }
  __device__ __forceinline__ u32 row_tile() const { return first / per_row_tile; }
  // End of the part of the range that lies in the row of atoms of its first atom.
  __device__ __forceinline__ u32 end_in_row_tile() const {
    return min(last, (row_tile() + 1) * per_row_tile);
  }
  // Row and first column of this thread's block in the first atom.
  __device__ __forceinline__ u32 row() const {
    return row_of_scale(row_tile() * kAtomRows, threadIdx.x);
  }
  __device__ __forceinline__ u32 column() const {
    return (first - row_tile() * per_row_tile) * kAtomColumns + threadIdx.x % 4 * kBlockColumns;
  }
};

// Prefetches a thread's first block into L2, for use before griddepcontrol_wait. No more: that would take
// bandwidth from the preceding kernel.
template <class Source>
__device__ __forceinline__ void prefetch_tiles(const Source& source, u32 rows, u32 columns) {
  const AtomRange range(rows, columns);
  if (range.first >= range.last) return;
  const u32 row = range.row();
  const u32 column = range.column();
  if (row < rows && column < columns) source.at(row, column).prefetch();
}

// Quantises [rows, columns] as `source` delivers it. Called by blocks of kQuantizeThreads threads, any
// grid.
template <class Source>
__device__ __forceinline__ void quantize_tiles(u8* data, u8* scales, const Source& source,
                                               u32 rows, u32 columns, const TensorScale& tensor) {
  AtomRange range(rows, columns);
  if (range.first >= range.last) return;

  __shared__ float multipliers[128];
  fill_multipliers(multipliers, tensor);

  // `|`, which equals `+` here: with `+` ptxas spills for sm_90.
  u8* scale = scales + (static_cast<u64>(range.first) * kAtomBytes | threadIdx.x);
  // One row of atoms at a time: within it all pointers advance by constants.
  while (range.first < range.last) {
    const u32 row = range.row();
    const u32 column = range.column();
    const u32 end = range.end_in_row_tile();
    int columns_left = row < rows ? static_cast<int>(columns - column) : 0;
    u8* to = data + (static_cast<u64>(row) * columns + column) / 2;
    typename Source::Cursor cursor = source.at(row, column);
    if (Source::kLoadsAhead && columns_left > 0) cursor.load();
#pragma unroll 1
    for (; range.first < end; ++range.first) {
      u32 scale_byte = 0;
      if (columns_left > 0) {
        u32 pairs[8];
        if (!Source::kLoadsAhead) cursor.load();
        source.take(cursor, pairs);
        cursor.advance();
        if (Source::kLoadsAhead && columns_left > static_cast<int>(kAtomColumns) &&
            range.first + 1 < end) {
          cursor.load();
        }
        scale_byte = tensor.scale_byte(__uint_as_float(amax_of(pairs)));
        *reinterpret_cast<uint2*>(to) = encode_block(pairs, scale_byte, multipliers[scale_byte]);
      }
      *scale = static_cast<u8>(scale_byte);
      columns_left -= kAtomColumns;
      to += kAtomColumns / 2;
      scale += kAtomBytes;
    }
  }
}

// A bf16 matrix [rows, columns]; row_stride in elements.
struct RowSource {
  const u16* input;
  i64 row_stride;

  struct Cursor {
    const u16* from;
    u32 pairs[8];

    __device__ __forceinline__ void load() { load_16_bf16(from, pairs); }
    __device__ __forceinline__ void prefetch() const { prefetch_l2(from); }
    __device__ __forceinline__ void advance() { from += kAtomColumns; }
  };
  static constexpr bool kLoadsAhead = false;  // registers are too few for two blocks

  __device__ __forceinline__ Cursor at(u32 row, u32 column) const {
    return {input + row * row_stride + column, {}};
  }
  __device__ __forceinline__ void take(const Cursor& cursor, u32 (&pairs)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) pairs[i] = cursor.pairs[i];
  }
};

}  // namespace nvfp4
}  // namespace cukiln
