// The tile loop for a gate and an up matrix whose columns alternate: [gate | up] is quantised.
//
// Of two neighbouring lanes, one has a block of gate and the other the same block of up; each loads
// half of the 32 columns that both lie in, and gives the other what belongs to it. A warp reads 4
// rows by 256 bytes; a thread block takes 64 rows of an atom of gate and of one of up at a time.
#pragma once

#include "quantize_tiles.cuh"

namespace cukiln {
namespace nvfp4 {

// Where the scale byte of (row, block) lies.
__device__ __forceinline__ u64 scale_offset(u32 row, u32 block, u32 atoms_per_row_tile) {
  const u64 atom = static_cast<u64>(row / kAtomRows) * atoms_per_row_tile + block / 4;
  return atom * kAtomBytes + row % 32 * 16 + row / 32 % 4 * 4 + block % 4;
}

// Input bf16 [rows, 2 * columns], `row_stride` elements from row to row. Blocks of kQuantizeThreads
// threads, any grid; block i takes the i-th of gridDim.x equal runs of consecutive half atoms.
__device__ __forceinline__ void quantize_pairs(u8* codes, u8* scales, const u16* input,
                                               i64 row_stride, u32 rows, u32 columns,
                                               const TensorScale& tensor) {
  const u32 steps_per_line = (columns + kAtomColumns - 1) / kAtomColumns;
  const u32 steps = (rows + kAtomRows - 1) / kAtomRows * 2 * steps_per_line;
  const u32 steps_per_thread_block = (steps + gridDim.x - 1) / gridDim.x;
  const u32 last = min((blockIdx.x + 1) * steps_per_thread_block, steps);
  u32 first = blockIdx.x * steps_per_thread_block;
  if (first >= last) return;

  __shared__ float multipliers[128];
  fill_multipliers(multipliers, tensor);

  const u32 lane = threadIdx.x % 32;
  const u32 is_up = lane & 1;
  const u32 own = is_up ? 0x7632 : 0x5410;
  const u32 row_in_line = lane / 8 * 32 + threadIdx.x / 32;
  const u32 blocks = columns / kBlockColumns;
  const u32 atoms_per_row_tile = (2 * columns + kAtomColumns - 1) / kAtomColumns;
  // A line at a time, the even or the odd half of a row tile: 16 of every 32 rows.
  while (first < last) {
    const u32 line = first / steps_per_line;
    const u32 line_end = (line + 1) * steps_per_line;
    const u32 row = line / 2 * kAtomRows + line % 2 * 16 + row_in_line;
    const u32 block = (first + steps_per_line - line_end) * 4 + lane / 2 % 4;
    const u16* from = input + row * row_stride + block * 32 + is_up * 16;
    u8* to = codes + ((static_cast<u64>(row) * 2 + is_up) * columns + block * kBlockColumns) / 2;
    u8* scale = scales + scale_offset(row, block + is_up * blocks, atoms_per_row_tile);
    const bool row_is_inside = row < rows;
    int blocks_left = static_cast<int>(blocks - block);
    const u32 end = min(last, line_end);
#pragma unroll 1
    for (u32 left = end - first; left > 0; --left, blocks_left -= 4) {
      u32 pairs[8] = {};
      if (row_is_inside && blocks_left > 0) {
        u32 words[8];
        load_16_bf16(from, words);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          pairs[i] = __byte_perm(words[2 * i], words[2 * i + 1], own);
          pairs[i + 4] = __byte_perm(words[2 * i], words[2 * i + 1], own ^ 0x2222);  // the other
        }
      }
#pragma unroll
      for (int i = 4; i < 8; ++i) pairs[i] = __shfl_xor_sync(~0u, pairs[i], 1);
      if (blocks_left > 0) {
        u32 scale_byte = 0;
        if (row_is_inside) {
          scale_byte = tensor.scale_byte(__uint_as_float(amax_of(pairs)));
          const uint2 halves = encode_block(pairs, scale_byte, multipliers[scale_byte]);
          *reinterpret_cast<uint2*>(to) = is_up ? make_uint2(halves.y, halves.x) : halves;
        }
        *scale = static_cast<u8>(scale_byte);
      }
      from += 4 * 2 * kBlockColumns;
      to += kAtomColumns / 2;
      scale += kAtomBytes;
    }
    first = end;
    if (end == line_end && blocks_left <= -4) {
      // What pads both matrices together: lanes of up have the first of it, of gate the rest.
      const u32 padding = blocks - blocks_left - 4 + (is_up ? blocks : steps_per_line * 4);
      if (padding < atoms_per_row_tile * 4) {
        scales[scale_offset(row, padding, atoms_per_row_tile)] = 0;
      }
    }
  }
}

}  // namespace nvfp4
}  // namespace cukiln
