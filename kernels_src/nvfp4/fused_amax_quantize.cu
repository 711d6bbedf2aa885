// Quantisers that read their global scale from device memory, as amax_gsa or a calibration wrote it: amax
// and quantisation can follow each other on a stream or in a CUDA graph without the host.
//
// quantize_nvfp4_from_buffer
//   What: as quantize_nvfp4, with {encode, decode} read from global_scale.
//   Shapes: input bf16 [rows, columns], row_stride in elements; n = columns.
//
// deinterleave_quantize_from_buffer
//   What: input bf16 [rows, 2 * columns] holds a gate and an up matrix of `columns` columns each whose
//     columns alternate, gate first; quantises [gate | up], n = 2 * columns. Where gate and up are halves
//     of the input already, quantize_nvfp4_from_buffer does it.
//
// Outputs of both, for n quantised columns: data [rows, n / 2] bytes, dense, low nibble = even column;
//   scales UE4M3, ceil(rows / 128) * ceil(n / 64) atoms of 512 bytes (scale_layout.cuh), padding bytes
//   included, which are written as 0.
// Alignment: every input row 16 bytes (row_stride a multiple of 8), data 8 bytes, global_scale 4.
// Limits: columns a multiple of 16; fewer than 2^31 atoms.
// NaN and inf: a block with a NaN gets scale byte 0x7F (NaN) and data 0, and so does every block when
//   global_scale is NaN; an infinity saturates to 6.
// Launch: block (512, 1, 1), any grid.x; more thread blocks than atoms have no work. No dynamic shared
//   memory, no workspace. Supports programmatic dependent launch.
// Source: TransformerEngine, NVFP4 recipe.
#include "dependent_launch.cuh"
#include "quantize_pairs.cuh"
#include "quantize_signatures.cuh"

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads,
                                             cukiln::nvfp4::kQuantizeBlocksPerSm)
    quantize_nvfp4_from_buffer(cukiln::u8* data, cukiln::u8* scales, const cukiln::u16* input,
                               const float* global_scale, cukiln::u32 rows, cukiln::u32 columns,
                               cukiln::i64 row_stride) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const RowSource source{input, row_stride};
  prefetch_tiles(source, rows, columns);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  quantize_tiles(data, scales, source, rows, columns, {global_scale[kEncode], global_scale[kDecode]});
}
static_assert(cukiln::kIsSame<decltype(quantize_nvfp4_from_buffer),
                              cukiln::signatures::QuantizeNvfp4FromBuffer>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads, 2)
    deinterleave_quantize_from_buffer(cukiln::u8* data, cukiln::u8* scales,
                                      const cukiln::u16* input, const float* global_scale, cukiln::u32 rows,
                                      cukiln::u32 columns, cukiln::i64 row_stride) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  quantize_pairs(data, scales, input, row_stride, rows, columns,
                 {global_scale[kEncode], global_scale[kDecode]});
}
static_assert(cukiln::kIsSame<decltype(deinterleave_quantize_from_buffer),
                              cukiln::signatures::DeinterleaveQuantizeFromBuffer>);
