// swiglu_amax_gsa: the global scale of y = SwiGLU(gate, up), without storing y.
//
// What: amax = max |y| over exactly the bf16 values that swiglu_quantize_from_buffer quantises from the
//   same input; its global scale as in amax_gsa. The two launches in order quantise an activation with a
//   dynamic scale and no intermediate tensor.
// Shapes: input bf16 [rows, 2 * columns], row_stride in elements; global_scale two floats.
// Alignment: every input row 16 bytes (row_stride a multiple of 8), global_scale 4.
// Limits: columns a multiple of 16; rows * columns / 16 below 2^31. An empty tensor has amax 0. divisor
//   as in amax_gsa.
// NaN and inf: of y, as in amax_gsa. gate = -inf gives NaN, as the formula does.
// Launch: block (512, 1, 1), any grid.x. A thread reads 16 columns of each matrix at a time, so a thread
//   block has work for each 8192 elements of y. No dynamic shared memory. Supports programmatic dependent
//   launch.
// Workspace, determinism, source: as in amax_gsa.
#include "amax.cuh"
#include "dependent_launch.cuh"
#include "gate_up.cuh"
#include "quantize_signatures.cuh"

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kAmaxThreads, 2)
    swiglu_amax_gsa(float* global_scale, const cukiln::u16* input, cukiln::u32 rows, cukiln::u32 columns,
                    cukiln::i64 row_stride, cukiln::u32 layout, float limit, float alpha,
                    float beta, cukiln::u32* workspace, float divisor) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const SwiGluSource source{input, row_stride, columns, layout, SwiGlu::of(limit, alpha, beta)};
  griddepcontrol_launch_dependents();
  const u32 blocks_per_row = columns / kBlockColumns;
  const u32 blocks = rows * blocks_per_row;
  const auto cursor_at = [&](u32 block) {
    const u32 row = block / blocks_per_row;
    return source.at(row, (block - row * blocks_per_row) * kBlockColumns);
  };
  u32 block = blockIdx.x * kAmaxThreads + threadIdx.x;
  if (block < blocks) cursor_at(block).prefetch();
  griddepcontrol_wait();
  u32 amax = 0;
#pragma unroll 1
  for (; block < blocks; block += gridDim.x * kAmaxThreads) {
    GateUpCursor cursor = cursor_at(block);
    u32 pairs[8];
    cursor.load();
    source.take(cursor, pairs);
    amax = max(amax, amax_of(pairs));
  }
  write_global_scale(global_scale, workspace, amax, divisor);
}
static_assert(cukiln::kIsSame<decltype(swiglu_amax_gsa), cukiln::signatures::SwigluAmaxGsa>);
