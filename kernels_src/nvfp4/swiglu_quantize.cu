// swiglu_quantize_from_buffer: the clamped SwiGLU of a gate and an up matrix, quantised to NVFP4.
//
// What: input bf16 [rows, 2 * columns] holds a gate and an up matrix of `columns` columns each;
//     g = min(gate, limit), u = min(max(up, -limit), limit),
//     y = bf16(g * sigmoid(alpha * g) * (u + beta)),
//   computed in float and rounded to bf16 once, is quantised: the same bytes as a bf16 activation kernel
//   followed by quantize_nvfp4_from_buffer. limit = inf, alpha = 1, beta = 0 is plain SwiGLU. global_scale
//   is that of y, not of the input: from swiglu_amax_gsa or a calibration.
//   layout: kHalves 0: gate | up; kPairs 1: columns alternate, gate first.
// Shapes: row_stride in elements; data [rows, columns / 2] bytes, dense, low nibble = even column; scales
//   UE4M3, ceil(rows / 128) * ceil(columns / 64) atoms of 512 bytes (scale_layout.cuh), padding bytes
//   included, which are written as 0.
// Alignment: every input row 16 bytes (row_stride a multiple of 8), data 8 bytes, global_scale 4.
// Limits: columns a multiple of 16; fewer than 2^31 atoms.
// NaN and inf: a block with a NaN gets scale byte 0x7F (NaN) and data 0, and so does every block when
//   global_scale is NaN; an infinity saturates to 6. gate = -inf gives NaN, as the formula does.
// Launch: block (512, 1, 1), any grid.x; more thread blocks than atoms have no work. No dynamic shared
//   memory, no workspace. Supports programmatic dependent launch.
// Source: as fused_amax_quantize.cu; vLLM, SiluAndMulWithClamp and swigluoai_and_mul, for the clamped
//   SwiGLU and the two layouts; Shazeer, GLU Variants Improve Transformer (2020).
#include "dependent_launch.cuh"
#include "gate_up.cuh"
#include "quantize_signatures.cuh"
#include "quantize_tiles.cuh"

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads, 2)
    swiglu_quantize_from_buffer(cukiln::u8* data, cukiln::u8* scales, const cukiln::u16* input,
                                const float* global_scale, cukiln::u32 rows, cukiln::u32 columns,
                                cukiln::i64 row_stride, cukiln::u32 layout, float limit, float alpha,
                                float beta) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const SwiGluSource source{input, row_stride, columns, layout, SwiGlu::of(limit, alpha, beta)};
  prefetch_tiles(source, rows, columns);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  quantize_tiles(data, scales, source, rows, columns, {global_scale[kEncode], global_scale[kDecode]});
}
static_assert(cukiln::kIsSame<decltype(swiglu_quantize_from_buffer),
                              cukiln::signatures::SwigluQuantizeFromBuffer>);
