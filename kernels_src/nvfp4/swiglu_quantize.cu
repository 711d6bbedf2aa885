// swiglu_quantize_from_buffer: a gate and an up matrix to the NVFP4 of their clamped SwiGLU.
//
// What: input bf16 [rows, 2 * columns] holds a gate and an up matrix of `columns` columns each;
//     g = min(gate, limit), u = min(max(up, -limit), limit),
//     y = bf16(g * sigmoid(alpha * g) * (u + beta)),
//   clamped before the sigmoid, in float, rounded to bf16 once, is quantised: what a bf16 activation
//   kernel followed by quantize_nvfp4_from_buffer gives. limit = inf, alpha = 1, beta = 0 is plain
//   SwiGLU. gsa is the scale of y, not of the input: swiglu_amax_gsa's, or a calibration's.
//   layout: kHalves 0: gate | up; kPairs 1: gate and up alternate, gate first.
// Shapes: row_stride elements from row to row; codes [rows, columns / 2] bytes, dense, low nibble =
//   even column; scales UE4M3, ceil(rows / 128) * ceil(columns / 64) atoms of 512 bytes, layout in
//   quantize_tiles.cuh. Every padding byte of scales is written as 0.
// Alignment: every input row 16 bytes (so row_stride is a multiple of 8), codes 8 bytes, gsa 4.
// Limits: columns a multiple of 16; number of atoms below 2^31.
// NaN and inf: a block with a NaN gets scale byte 0x7F (NaN) and codes 0, and so does every block
//   when gsa is NaN; an infinity saturates to 6. gate = -inf gives NaN, as the formula does.
// Launch: block (512, 1, 1); grid (any, 1, 1), where more thread blocks than atoms do not help; no
//   dynamic shared memory, no workspace. May be launched programmatically.
// Source: as fused_amax_quantize.cu; vLLM, SiluAndMulWithClamp and swigluoai_and_mul, for the clamped
//   SwiGLU and the two layouts; Shazeer, GLU Variants Improve Transformer (2020).
#include "dependent_launch.cuh"
#include "gate_up.cuh"
#include "quantize_tiles.cuh"

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads, 2)
    swiglu_quantize_from_buffer(cukiln::u8* codes, cukiln::u8* scales, const cukiln::u16* input,
                                const float* gsa, cukiln::u32 rows, cukiln::u32 columns,
                                cukiln::i64 row_stride, cukiln::u32 layout, float limit, float alpha,
                                float beta) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const SwiGluSource source{input, row_stride, columns, layout, SwiGlu::of(limit, alpha, beta)};
  allow_next_kernel();
  prefetch_tiles(source, rows, columns);
  wait_for_previous_kernel();
  quantize_tiles(codes, scales, source, rows, columns, {gsa[0], gsa[1]});
}
