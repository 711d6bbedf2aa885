// Where the block scales of an NVFP4 matrix lie: the swizzled layout that the tensor cores of sm_100 read
// (cuBLAS: CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, CUTLASS: Sm1xxBlockScaledConfig<16>).
//
// A block is 16 consecutive columns of a row and has one UE4M3 scale. Rows are padded to 128 and blocks to
// 4; one atom of 512 bytes holds 128 rows by 4 blocks. Atoms are row-major: all atoms of rows 0 to 127,
// then those of rows 128 to 255. Within an atom rows r, r + 32, r + 64 and r + 96 share 16 bytes:
//
//   offset(r, b) = ((r / 128) * scale_atoms(columns) + b / 4) * 512     the atom
//                + (r % 32) * 16 + (r / 32 % 4) * 4 + b % 4             the byte in it
//
// `cukiln::nvfp4::scale_offset` in include/cukiln/nvfp4/nvfp4.hpp is the same function for hosts, which do not
// see this folder; tests/nvfp4/sm100/layouts.cpp compares both with CUTLASS.
#pragma once

#include "types.cuh"

namespace cukiln {
namespace nvfp4 {

// Indices of a matrix's global scale, two floats: encode = 2688 / amax, decode = 1 / encode.
constexpr u32 kEncode = 0;
constexpr u32 kDecode = 1;

constexpr u32 kBlockColumns = 16;
constexpr u32 kAtomRows = 128;
constexpr u32 kAtomColumns = 64;  // of the matrix: 4 blocks
constexpr u32 kAtomBytes = 512;

// Atoms side by side in a row of atoms.
__device__ __forceinline__ constexpr u32 scale_atoms(u32 columns) {
  return (columns + kAtomColumns - 1) / kAtomColumns;
}

// Rows of atoms.
__device__ __forceinline__ constexpr u32 scale_atom_rows(u32 rows) {
  return (rows + kAtomRows - 1) / kAtomRows;
}

// Bytes of all block scales of [rows, columns], padding included.
__device__ __forceinline__ constexpr u64 padded_scale_bytes(u32 rows, u32 columns) {
  return static_cast<u64>(scale_atom_rows(rows)) * scale_atoms(columns) * kAtomBytes;
}

// Offset in its atom of the four scales of `row`, a name: two terms to be added to where the atom begins.
// A macro without parentheses on purpose: a function's sum is another order of additions, from which the
// compiler makes other machine code.
#define CUKILN_SCALE_ROW_OFFSET(row) row % 32 * 16 + row / 32 % 4 * 4
// The same for a row counted from its atom's first, < 128.
#define CUKILN_SCALE_ROW_OFFSET_IN_ATOM(row) row % 32 * 16 + row / 32 * 4

// The inverse: of the atom whose first row is `first_row`, the row that byte `byte` < 512 belongs to. Its
// block is byte % 4.
__device__ __forceinline__ constexpr u32 row_of_scale(u32 first_row, u32 byte) {
  return first_row + byte / 4 % 4 * 32 + byte / 16;
}

// Offset of the scale of columns 16 * block to 16 * block + 15 of `row`. `atoms`: scale_atoms(columns).
__device__ __forceinline__ constexpr u64 scale_byte_offset(u32 row, u32 block, u32 atoms) {
  const u64 atom = static_cast<u64>(row / kAtomRows) * atoms + block / 4;
  return atom * kAtomBytes + CUKILN_SCALE_ROW_OFFSET(row) + block % 4;
}

}  // namespace nvfp4
}  // namespace cukiln
