// Quantisers that take their global scale from the buffer which amax_gsa (or a calibration) filled,
// so that amax and quantisation follow each other on a stream, or in a graph, without the host.
//
// quantize_nvfp4_from_buffer
//   What: as quantize_nvfp4, with {encode, decode} read from gsa.
//   Shapes: input bf16 [rows, columns], row_stride elements from row to row.
//
// deinterleave_quantize_from_buffer
//   What: input bf16 [rows, 2 * columns] holds a gate and an up matrix of `columns` columns each.
//     layout      kHalves 0: gate | up; kPairs 1: gate and up alternate, gate first.
//     activation  kNone 0: quantises [gate | up], 2 * columns wide, from either layout.
//                 kSwiGlu 1: quantises the product, `columns` wide,
//                   g = min(gate, limit), u = min(max(up, -limit), limit),
//                   y = bf16(g * sigmoid(alpha * g) * (u + beta)),
//                 clamped before the sigmoid, in float, rounded to bf16 once: what a bf16
//                 activation kernel followed by quantize_nvfp4_from_buffer gives. limit = inf,
//                 alpha = 1, beta = 0 is plain SwiGLU. gsa is the scale of y, not of the input.
//     limit, alpha and beta are not used where activation is kNone.
//
// Outputs of both, for n quantised columns: codes [rows, n / 2] bytes, dense, low nibble = even
//   column; scales UE4M3, ceil(rows / 128) * ceil(n / 64) atoms of 512 bytes, layout in
//   quantize_tiles.cuh. Every padding byte of scales is written as 0.
// Alignment: every input row 16 bytes (so row_stride is a multiple of 8), codes 8 bytes, gsa 4.
// Limits: columns a multiple of 16; number of atoms below 2^31.
// NaN and inf: a block with a NaN gets scale byte 0x7F (NaN) and codes 0, and so does every block
//   when gsa is NaN; an infinity saturates to 6. gate = -inf gives NaN, as the formula does.
// Launch: block (512, 1, 1); grid (any, 1, 1), where more thread blocks than atoms do not help; no
//   dynamic shared memory, no workspace.
// Source: TransformerEngine, NVFP4 recipe; vLLM, SiluAndMulWithClamp and swigluoai_and_mul, for the
//   clamped SwiGLU and the two layouts; Shazeer, GLU Variants Improve Transformer (2020).
#include "gate_up.cuh"
#include "quantize_tiles.cuh"

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads,
                                             cukiln::nvfp4::kQuantizeResidentBlocks)
    quantize_nvfp4_from_buffer(cukiln::u8* codes, cukiln::u8* scales, const cukiln::u16* input,
                               const float* gsa, cukiln::u32 rows, cukiln::u32 columns,
                               cukiln::i64 row_stride) {
  using namespace cukiln::nvfp4;
  quantize_tiles(codes, scales, RowSource{input, row_stride}, rows, columns, {gsa[0], gsa[1]});
}

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads, 2)
    deinterleave_quantize_from_buffer(cukiln::u8* codes, cukiln::u8* scales,
                                      const cukiln::u16* input, const float* gsa, cukiln::u32 rows,
                                      cukiln::u32 columns, cukiln::i64 row_stride,
                                      cukiln::u32 layout, cukiln::u32 activation, float limit,
                                      float alpha, float beta) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const GateUpSource source{input,  row_stride, columns,
                            layout, activation, SwiGlu::of(limit, alpha, beta)};
  quantize_tiles(codes, scales, source, rows, activation == kSwiGlu ? columns : 2 * columns,
                 {gsa[0], gsa[1]});
}
