// quantize_nvfp4: bf16 to NVFP4 with a global scale known to the host.
//
// What: scale = ue4m3(block amax * encode / 6), element = e2m1(x / (scale * decode)), with decode = 1 /
//   encode; exact roundings and NaN rule in nvfp4_numerics.cuh.
// Shapes: input bf16 [rows, columns], row_stride in elements; data [rows, columns / 2] bytes, dense, low
//   nibble = even column; scales UE4M3, ceil(rows / 128) * ceil(columns / 64) atoms of 512 bytes
//   (scale_layout.cuh), padding bytes included, which are written as 0.
// Alignment: every input row 16 bytes (row_stride a multiple of 8), data 8 bytes.
// Limits: columns a multiple of 16; fewer than 2^31 atoms; encode_scale positive and finite.
// NaN and inf: a block with a NaN gets scale byte 0x7F (NaN) and data 0; inf saturates to 6.
// Launch: block (512, 1, 1), any grid.x; more thread blocks than atoms have no work. No dynamic shared
//   memory, no workspace. Supports programmatic dependent launch.
// Source: TransformerEngine, NVFP4 recipe.
#include "dependent_launch.cuh"
#include "quantize_signatures.cuh"
#include "quantize_tiles.cuh"

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads,
                                             cukiln::nvfp4::kQuantizeBlocksPerSm)
    quantize_nvfp4(cukiln::u8* data, cukiln::u8* scales, const cukiln::u16* input,
                   float encode_scale, cukiln::u32 rows, cukiln::u32 columns,
                   cukiln::i64 row_stride) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const RowSource source{input, row_stride};
  const TensorScale tensor{encode_scale, rcp_rn(encode_scale)};
  prefetch_tiles(source, rows, columns);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  quantize_tiles(data, scales, source, rows, columns, tensor);
}
static_assert(cukiln::kIsSame<decltype(quantize_nvfp4), cukiln::signatures::QuantizeNvfp4>);
