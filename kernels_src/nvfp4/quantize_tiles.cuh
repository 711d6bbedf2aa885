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
//   static constexpr int kAtomsInFlight               atoms loaded before the first is used
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
constexpr u32 kAtomBlocks = 4;

// `source` lies on 16 bytes.
__device__ __forceinline__ void load_16_bf16(const u16* source, u32 (&pairs)[8]) {
  const uint4 low = __ldg(reinterpret_cast<const uint4*>(source));
  const uint4 high = __ldg(reinterpret_cast<const uint4*>(source) + 1);
  pairs[0] = low.x;
  pairs[1] = low.y;
  pairs[2] = low.z;
  pairs[3] = low.w;
  pairs[4] = high.x;
  pairs[5] = high.y;
  pairs[6] = high.z;
  pairs[7] = high.w;
}

// Quantises [rows, columns] as `source` delivers it. Blocks of kQuantizeThreads threads, any grid;
// block i takes the i-th of gridDim.x equal runs of consecutive atoms.
template <class Source>
__device__ __forceinline__ void quantize_tiles(u8* codes, u8* scales, const Source& source,
                                               u32 rows, u32 columns, float encode, float decode) {
  constexpr int kInFlight = Source::kAtomsInFlight;
  const u32 atoms_per_row_tile = (columns + 63) / 64;
  const u32 atoms = (rows + kAtomRows - 1) / kAtomRows * atoms_per_row_tile;
  const u32 atoms_per_thread_block = (atoms + gridDim.x - 1) / gridDim.x;
  const u32 first = blockIdx.x * atoms_per_thread_block;
  const u32 last = min(first + atoms_per_thread_block, atoms);
  if (first >= last) return;

  const u32 thread = threadIdx.x;
  const u32 row_in_tile = ((thread >> 2) & 3) * 32 + (thread >> 4);
  const u32 block_in_atom = thread & 3;
  const float scale_factor = block_scale_factor(encode);

  u32 row = first / atoms_per_row_tile * kAtomRows + row_in_tile;
  u32 column_atom = first % atoms_per_row_tile;
  for (u32 atom = first; atom < last; atom += kInFlight) {
    u32 pairs[kInFlight][8];
    u64 code_offset[kInFlight];
    bool inside[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const u32 column = (column_atom * kAtomBlocks + block_in_atom) * kBlockColumns;
      inside[i] = atom + i < last && row < rows && column < columns;
      code_offset[i] = (static_cast<u64>(row) * columns + column) / 2;
      if (inside[i]) source.load(row, column, pairs[i]);
      if (++column_atom == atoms_per_row_tile) {
        column_atom = 0;
        row += kAtomRows;
      }
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      u32 scale_byte = 0;
      if (inside[i]) {
        uint2 packed;
        scale_byte = quantize_block(pairs[i], scale_factor, decode, &packed);
        *reinterpret_cast<uint2*>(codes + code_offset[i]) = packed;
      }
      if (atom + i < last) {
        scales[static_cast<u64>(atom + i) * kAtomBytes + thread] = static_cast<u8>(scale_byte);
      }
    }
  }
}

// bf16 [rows, columns], `row_stride` elements from row to row.
struct RowSource {
  static constexpr int kAtomsInFlight = 1;

  const u16* input;
  i64 row_stride;

  __device__ __forceinline__ void load(u32 row, u32 column, u32 (&pairs)[8]) const {
    load_16_bf16(input + row * row_stride + column, pairs);
  }
};

}  // namespace nvfp4
}  // namespace cukiln
