// The steps of a mixture of experts between moe_route, with tiles of 128 positions, and the grouped GEMMs
// (nvfp4_gemm_grouped_*). Tile t has rows 128 * t .. 128 * t + 127 of the GEMM's A: its positions, then
// padding rows.
//
// moe_gather
//   What: gathers the data and block scales of each row's token, the scales into swizzled atoms. Padding
//     rows are not written: a row of a GEMM's result depends on that row only. row_experts[tile] is the
//     tile's expert, or -1 from *tile_count on. up_global_scales and down_global_scales get the decode
//     scales of experts that have tokens; encode is not written. rows[slot] becomes the slot's row instead
//     of its position (moe_route wrote -1 where it has none).
//   Shapes: tokens: data [.., columns / 2], linear scales [.., columns / 16]; outputs: data [128 * tiles,
//     columns / 2], scales in atoms.
//   Limits: columns a multiple of 64. Launch: block (256, 1, 1), grid (ceil(columns / 512), maximum number
//     of tiles, 1).
//
// moe_activate
//   What: swiglu_quantize_from_buffer of the first 128 * *tile_count rows.
//   Shapes: gemm_output bf16 [rows, 2 * width]; data [rows, width / 2], scales in atoms.
//   Limits: width a multiple of 16. Launch: block (512, 1, 1), any grid.
//
// Both: no dynamic shared memory; each launch writes everything that a later one reads.
// Alignment: 16 bytes for data and gemm_output, 4 for scales.
// NaN: a NaN scale, of a token or of an activation, affects its own row only.
// Source: vLLM, fused MoE, for the steps.
#include "gate_up.cuh"
#include "moe_signatures.cuh"
#include "moe_tiles.cuh"
#include "quantize_tiles.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kGatherThreads = 256;
constexpr u32 kGatherAtoms = 8;  // side by side, for a thread block

// Copies 64 columns of one row, as many as an atom covers.
__device__ __forceinline__ void copy_data(u8* to, const u8* from) {
  const uint4 low = __ldg(reinterpret_cast<const uint4*>(from));
  const uint4 high = __ldg(reinterpret_cast<const uint4*>(from) + 1);
  reinterpret_cast<uint4*>(to)[0] = low;
  reinterpret_cast<uint4*>(to)[1] = high;
}

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kGatherThreads)
    moe_gather(cukiln::u8* data, cukiln::u8* scales, int* row_experts, int* rows, float* up_global_scales,
               float* down_global_scales, const cukiln::nvfp4::MoeTile* tiles,
               const cukiln::u32* tile_count, const cukiln::u32* slots, const cukiln::u8* token_data,
               const cukiln::u8* token_scales, const float* up_decode, const float* down_decode,
               cukiln::u32 topk, cukiln::u32 columns) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const u32 index = blockIdx.y;
  const bool is_first = blockIdx.x == 0;
  if (index >= *tile_count) {
    if (is_first && threadIdx.x == 0) row_experts[index] = -1;
    return;
  }
  const MoeTile tile = tiles[index];
  if (is_first) {
    if (threadIdx.x < tile.count) {
      rows[slots[tile.first + threadIdx.x]] = static_cast<int>(index * kAtomRows + threadIdx.x);
    }
    if (threadIdx.x == 0) {
      row_experts[index] = static_cast<int>(tile.expert);
      up_global_scales[2 * tile.expert + kDecode] = up_decode[tile.expert];
      down_global_scales[2 * tile.expert + kDecode] = down_decode[tile.expert];
    }
  }

  // Four threads fill 16 bytes of an atom, the scales of rows `line`, line + 32, line + 64 and line + 96
  // (scale_layout.cuh): thread `quarter` has row quarter * 32 + line. A warp reads 256 bytes of each row.
  const u32 atoms = columns / kAtomColumns;
  const u32 quarter = threadIdx.x % 4;
  const u32 atom = blockIdx.x * kGatherAtoms + threadIdx.x / 4 % kGatherAtoms;
  if (atom >= atoms) return;
  u8* const to_atom = scales + (static_cast<u64>(index) * atoms + atom) * kAtomBytes + quarter * 4;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    const u32 line = threadIdx.x / 32 + i * (kGatherThreads / 32);
    const u32 row = quarter * 32 + line;
    if (row >= tile.count) continue;
    const u32 token = slots[tile.first + row] / topk;
    const u64 from = static_cast<u64>(token) * columns + atom * kAtomColumns;
    const u64 to = (static_cast<u64>(index) * kAtomRows + row) * columns + atom * kAtomColumns;
    copy_data(data + to / 2, token_data + from / 2);
    *reinterpret_cast<u32*>(to_atom + line * 16) =
        __ldg(reinterpret_cast<const u32*>(token_scales + from / kBlockColumns));
  }
}
static_assert(cukiln::kIsSame<decltype(moe_gather), cukiln::signatures::MoeGather>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads, 2)
    moe_activate(cukiln::u8* data, cukiln::u8* scales, const cukiln::u16* gemm_output,
                 const cukiln::u32* tile_count, const float* global_scale, cukiln::u32 width,
                 cukiln::u32 layout, float limit, float alpha, float beta) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const SwiGluSource source{gemm_output, 2 * static_cast<i64>(width), width, layout,
                            SwiGlu::of(limit, alpha, beta)};
  quantize_tiles(data, scales, source, *tile_count * kAtomRows, width,
                 {global_scale[kEncode], global_scale[kDecode]});
}
static_assert(cukiln::kIsSame<decltype(moe_activate), cukiln::signatures::MoeActivate>);
