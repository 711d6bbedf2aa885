// Quantisers that take their global scale from the buffer which amax_gsa (or a calibration) filled,
// so that amax and quantisation follow each other on a stream, or in a graph, without the host.
//
// quantize_nvfp4_from_buffer
//   What: as quantize_nvfp4, with {encode, decode} read from gsa.
//   Shapes: input bf16 [rows, columns], row_stride elements from row to row; n = columns.
//
// deinterleave_quantize_from_buffer
//   What: input bf16 [rows, 2 * columns] holds a gate and an up matrix of `columns` columns each
//     that alternate, gate first; quantises [gate | up], n = 2 * columns wide. Where they are one
//     half each, they lie as they are wanted: quantize_nvfp4_from_buffer takes that.
//
// Outputs of both, for n quantised columns: codes [rows, n / 2] bytes, dense, low nibble = even
//   column; scales UE4M3, ceil(rows / 128) * ceil(n / 64) atoms of 512 bytes, layout in
//   quantize_tiles.cuh. Every padding byte of scales is written as 0.
// Alignment: every input row 16 bytes (so row_stride is a multiple of 8), codes 8 bytes, gsa 4.
// Limits: columns a multiple of 16; number of atoms below 2^31.
// NaN and inf: a block with a NaN gets scale byte 0x7F (NaN) and codes 0, and so does every block
//   when gsa is NaN; an infinity saturates to 6.
// Launch: block (512, 1, 1); grid (any, 1, 1), where more thread blocks than atoms do not help; no
//   dynamic shared memory, no workspace. May be launched programmatically.
// Source: TransformerEngine, NVFP4 recipe.
#include "dependent_launch.cuh"
#include "quantize_pairs.cuh"

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads,
                                             cukiln::nvfp4::kQuantizeResidentBlocks)
    quantize_nvfp4_from_buffer(cukiln::u8* codes, cukiln::u8* scales, const cukiln::u16* input,
                               const float* gsa, cukiln::u32 rows, cukiln::u32 columns,
                               cukiln::i64 row_stride) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const RowSource source{input, row_stride};
  allow_next_kernel();
  prefetch_tiles(source, rows, columns);
  wait_for_previous_kernel();
  quantize_tiles(codes, scales, source, rows, columns, {gsa[0], gsa[1]});
}

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads, 2)
    deinterleave_quantize_from_buffer(cukiln::u8* codes, cukiln::u8* scales,
                                      const cukiln::u16* input, const float* gsa, cukiln::u32 rows,
                                      cukiln::u32 columns, cukiln::i64 row_stride) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  allow_next_kernel();
  wait_for_previous_kernel();
  quantize_pairs(codes, scales, input, row_stride, rows, columns, {gsa[0], gsa[1]});
}
