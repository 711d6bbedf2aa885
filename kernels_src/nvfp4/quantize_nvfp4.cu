// quantize_nvfp4: bf16 to NVFP4 with a global scale that the host knows.
//
// What: scale = ue4m3(block amax * encode / 6), code = e2m1(x / (scale * decode)), with
//   decode = 1 / encode; the exact roundings and the NaN rule are in nvfp4_numerics.cuh.
// Shapes: input bf16 [rows, columns], row_stride elements from row to row; codes
//   [rows, columns / 2] bytes, dense, low nibble = even column; scales UE4M3,
//   ceil(rows / 128) * ceil(columns / 64) atoms of 512 bytes, layout in quantize_tiles.cuh. Every
//   padding byte of scales is written as 0.
// Alignment: every input row 16 bytes (so row_stride is a multiple of 8), codes 8 bytes.
// Limits: columns a multiple of 16; number of atoms below 2^31; encode_scale positive and finite.
// NaN and inf: a block with a NaN gets scale byte 0x7F (NaN) and codes 0; inf saturates to 6.
// Launch: block (512, 1, 1); grid (any, 1, 1), where more thread blocks than atoms do not help; no
//   dynamic shared memory, no workspace.
// Source: TransformerEngine, NVFP4 recipe.
#include "dependent_launch.cuh"
#include "quantize_tiles.cuh"

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads,
                                             cukiln::nvfp4::kQuantizeResidentBlocks)
    quantize_nvfp4(cukiln::u8* codes, cukiln::u8* scales, const cukiln::u16* input,
                   float encode_scale, cukiln::u32 rows, cukiln::u32 columns,
                   cukiln::i64 row_stride) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const RowSource source{input, row_stride};
  const TensorScale tensor{encode_scale, rcp_rn(encode_scale)};
  allow_next_kernel();
  prefetch_tiles(source, rows, columns);
  wait_for_previous_kernel();
  quantize_tiles(codes, scales, source, rows, columns, tensor);
}
