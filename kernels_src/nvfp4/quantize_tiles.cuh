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
//   Cursor at(u32 row, u32 column)      what moves from atom to atom, with what it has loaded:
//     load(), advance()                 16 columns of the row, or what is made into 16
//     prefetch()                        the same, into L2
//   take(cursor, u32 (&pairs)[8])       of what is loaded: 16 bf16, low half = even column
//   kLoadsAhead                         whether a thread loads what comes next before it quantises
//                                       what it has, which takes registers for both
#pragma once

#include "dependent_launch.cuh"
#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kQuantizeThreads = 512;
// Thread blocks that share a multiprocessor: all the threads it holds, unless registers would
// spill.
constexpr u32 kQuantizeResidentBlocks = __CUDA_ARCH__ >= 1000 ? 3 : 4;

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

// The multipliers of all scale bytes: one costs a division, and there are 128 of them.
__device__ __forceinline__ void fill_multipliers(float (&multipliers)[128],
                                                 const TensorScale& tensor) {
  if (threadIdx.x < 128) multipliers[threadIdx.x] = tensor.multiplier(threadIdx.x);
  __syncthreads();
}

// What a thread block takes of [rows, columns]: block i the i-th of gridDim.x equal runs of
// consecutive atoms, thread t byte t of each.
struct AtomRun {
  u32 per_row_tile;
  u32 first;
  u32 last;

  __device__ __forceinline__ AtomRun(u32 rows, u32 columns)
      : per_row_tile(scale_atoms(columns)) {
    const u32 atoms = scale_atom_rows(rows) * per_row_tile;
    const u32 per_thread_block = (atoms + gridDim.x - 1) / gridDim.x;
    first = blockIdx.x * per_thread_block;
    last = min(first + per_thread_block, atoms);
  }
  __device__ __forceinline__ u32 row_tile() const { return first / per_row_tile; }
  // Up to which the run is in the row tile of its first atom.
  __device__ __forceinline__ u32 end_in_row_tile() const {
    return min(last, (row_tile() + 1) * per_row_tile);
  }
  // Of the thread's byte of the first atom.
  __device__ __forceinline__ u32 row() const {
    return row_of_scale(row_tile() * kAtomRows, threadIdx.x);
  }
  __device__ __forceinline__ u32 column() const {
    return (first - row_tile() * per_row_tile) * kAtomColumns + threadIdx.x % 4 * kBlockColumns;
  }
};

// Before wait_for_previous_kernel: what quantize_tiles of the same reads first, and no more, which
// would take from what the kernel before still reads.
template <class Source>
__device__ __forceinline__ void prefetch_tiles(const Source& source, u32 rows, u32 columns) {
  const AtomRun run(rows, columns);
  if (run.first >= run.last) return;
  const u32 row = run.row();
  const u32 column = run.column();
  if (row < rows && column < columns) source.at(row, column).prefetch();
}

// Quantises [rows, columns] as `source` delivers it. Blocks of kQuantizeThreads threads, any grid.
template <class Source>
__device__ __forceinline__ void quantize_tiles(u8* codes, u8* scales, const Source& source,
                                               u32 rows, u32 columns, const TensorScale& tensor) {
  AtomRun run(rows, columns);
  if (run.first >= run.last) return;

  __shared__ float multipliers[128];
  fill_multipliers(multipliers, tensor);

  // By `|`: with `+`, ptxas spills for sm_90.
  u8* scale = scales + (static_cast<u64>(run.first) * kAtomBytes | threadIdx.x);
  // A row tile's part of the run at a time: within it, everything moves on by the same distances.
  while (run.first < run.last) {
    const u32 row = run.row();
    const u32 column = run.column();
    const u32 end = run.end_in_row_tile();
    int columns_left = row < rows ? static_cast<int>(columns - column) : 0;
    u8* to = codes + (static_cast<u64>(row) * columns + column) / 2;
    typename Source::Cursor cursor = source.at(row, column);
    if (Source::kLoadsAhead && columns_left > 0) cursor.load();
#pragma unroll 1
    for (; run.first < end; ++run.first) {
      u32 scale_byte = 0;
      if (columns_left > 0) {
        u32 pairs[8];
        if (!Source::kLoadsAhead) cursor.load();
        source.take(cursor, pairs);
        cursor.advance();
        if (Source::kLoadsAhead && columns_left > static_cast<int>(kAtomColumns) &&
            run.first + 1 < end) {
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

// bf16 [rows, columns], `row_stride` elements from row to row.
struct RowSource {
  const u16* input;
  i64 row_stride;

  struct Cursor {
    const u16* from;
    u32 pairs[8];

    __device__ __forceinline__ void load() { load_16_bf16(from, pairs); }
    __device__ __forceinline__ void prefetch() const { prefetch_line(from); }
    __device__ __forceinline__ void advance() { from += kAtomColumns; }
  };
  static constexpr bool kLoadsAhead = false;  // there are no registers for two

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
