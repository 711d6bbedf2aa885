// The quantisers' main loop for an input whose gate and up columns alternate: quantises [gate | up].
//
// A thread loads 32 input columns, which hold a block of gate and the same block of up. Atoms are counted
// on the gate half; a warp reads 8 rows by 256 bytes.
#pragma once

#include "gate_up.cuh"
#include "quantize_tiles.cuh"

namespace cukiln {
namespace nvfp4 {

// Input bf16 [rows, 2 * columns], gate first, row_stride in elements. Called by blocks of kQuantizeThreads
// threads, any grid.
__device__ __forceinline__ void quantize_pairs(u8* data, u8* scales, const u16* input,
                                               i64 row_stride, u32 rows, u32 columns,
                                               const TensorScale& tensor) {
  AtomRange range(rows, columns);
  if (range.first >= range.last) return;

  const u32 blocks = columns / kBlockColumns;
  const u32 atoms_per_row_tile = scale_atoms(2 * columns);
  u32 row;
  u32 end;
  int blocks_left;
  u8* to;
  u8* scale;
  u8* up_scale;
  GateUpCursor cursor;
  const auto start_row_tile = [&] {
    row = range.row();
    const u32 block = range.column() / kBlockColumns;
    end = range.end_in_row_tile();
    blocks_left = static_cast<int>(blocks - block);
    to = data + static_cast<u64>(row) * columns + range.column() / 2;
    scale = scales + scale_byte_offset(row, block, atoms_per_row_tile);
    up_scale = scales + scale_byte_offset(row, block + blocks, atoms_per_row_tile);
    cursor = GateUpCursor::of_pairs(input + row * row_stride, range.column());
    if (row < rows && blocks_left > 0) cursor.load();
  };
  start_row_tile();  // its loads overlap with fill_multipliers
  __shared__ float multipliers[128];
  fill_multipliers(multipliers, tensor);
  while (true) {
#pragma unroll 1
    for (; range.first < end; ++range.first) {
      if (blocks_left > 0) {
        u32 gate_byte = 0;
        u32 up_byte = 0;
        if (row < rows) {
          u32 gate[8];
          u32 up[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            gate[i] = __byte_perm(cursor.even(i), cursor.odd(i), 0x5410);
            up[i] = __byte_perm(cursor.even(i), cursor.odd(i), 0x7632);
          }
          cursor.advance();
          if (blocks_left > 4 && range.first + 1 < end) cursor.load();
          gate_byte = tensor.scale_byte(__uint_as_float(amax_of(gate)));
          *reinterpret_cast<uint2*>(to) = encode_block(gate, gate_byte, multipliers[gate_byte]);
          up_byte = tensor.scale_byte(__uint_as_float(amax_of(up)));
          *reinterpret_cast<uint2*>(to + columns / 2) =
              encode_block(up, up_byte, multipliers[up_byte]);
        }
        *scale = static_cast<u8>(gate_byte);
        *up_scale = static_cast<u8>(up_byte);
      } else if (blocks_left == 0 && blocks % 2 != 0) {
        // The up half ends before the padding of the scales. With an odd number of blocks in each half that
        // is two blocks, which this thread zeroes; with an even number none.
        up_scale[0] = 0;
        up_scale[1] = 0;
      }
      blocks_left -= 4;
      to += kAtomColumns / 2;
      scale += kAtomBytes;
      up_scale += kAtomBytes;
    }
    if (range.first >= range.last) return;
    start_row_tile();
  }
}

}  // namespace nvfp4
}  // namespace cukiln
