// A mixture of experts by grouped products (nvfp4_gemm_grouped_*): what comes between moe_route, with
// tiles of 128 positions, the two products, and the result. Tile t has rows 128 * t .. 128 * t + 127,
// its positions first; rows beyond them belong to nobody.
//
// moe_gather
//   What: codes and block scales of each row's token, the scales in swizzled atoms; nobody's rows are
//     left as they are, for a row of a product depends on that row alone. row_experts[tile], the
//     tile's expert, or -1 from *tile_count on. up_gsa and down_gsa, {encode, decode} of experts that
//     have tokens, encode left as it is. rows[slot], the slot's row in place of its position (moe_route
//     wrote -1 where it has none).
//   Shapes: tokens codes [.., columns / 2], linear scales [.., columns / 16]; codes [128 * tiles,
//     columns / 2], scales in atoms.
//   Limits: columns a multiple of 64. Launch: block (256, 1, 1), grid (ceil(columns / 512), most
//     tiles there can be, 1).
//
// moe_activate
//   What: as deinterleave_quantize_from_buffer with kSwiGlu, of 128 * *tile_count rows.
//   Shapes: products bf16 [rows, 2 * width]; codes [rows, width / 2], scales in atoms.
//   Limits: width a multiple of 16. Launch: block (512, 1, 1), any grid.
//
// moe_combine_rows
//   What: output[token] = bf16(sum of topk_weights[slot] * products[rows[slot]]) over the token's slots
//     that have a row, in order, by float FMAs.
//   Shapes: products bf16 [rows, columns]; output bf16 [tokens, columns].
//   Limits: columns a multiple of 8. Launch: block (256, 1, 1), grid (tokens, ceil(columns / 2048), 1).
//
// All: no dynamic shared memory; a launch writes everything that a later one reads.
// Alignment: 16 bytes for codes, products and output, 4 for scales.
// NaN: a NaN scale, of a token or of its products, stays within that row.
// Source: vLLM, fused MoE, for the steps.
#include "gate_up.cuh"
#include "moe_tiles.cuh"
#include "quantize_tiles.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kGatherThreads = 256;
constexpr u32 kGatherAtoms = 8;  // side by side, by a thread block
constexpr u32 kCombineThreads = 256;

__device__ __forceinline__ float multiply_add_rn(float a, float b, float c) {
  float sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}

// 64 columns of one row: an atom's part of it.
__device__ __forceinline__ void copy_codes(u8* to, const u8* from) {
  const uint4 low = __ldg(reinterpret_cast<const uint4*>(from));
  const uint4 high = __ldg(reinterpret_cast<const uint4*>(from) + 1);
  reinterpret_cast<uint4*>(to)[0] = low;
  reinterpret_cast<uint4*>(to)[1] = high;
}

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kGatherThreads)
    moe_gather(cukiln::u8* codes, cukiln::u8* scales, int* row_experts, int* rows, float* up_gsa,
               float* down_gsa, const cukiln::nvfp4::MoeTile* tiles, const cukiln::u32* tile_count,
               const cukiln::u32* slots, const cukiln::u8* token_codes,
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
      up_gsa[2 * tile.expert + 1] = up_decode[tile.expert];
      down_gsa[2 * tile.expert + 1] = down_decode[tile.expert];
    }
  }

  // Four threads fill 16 bytes of an atom: rows 32 apart. Eight times as many read 256 bytes of each.
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
    copy_codes(codes + to / 2, token_codes + from / 2);
    *reinterpret_cast<u32*>(to_atom + line * 16) =
        __ldg(reinterpret_cast<const u32*>(token_scales + from / kBlockColumns));
  }
}

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeThreads, 2)
    moe_activate(cukiln::u8* codes, cukiln::u8* scales, const cukiln::u16* products,
                 const cukiln::u32* tile_count, const float* gsa, cukiln::u32 width,
                 cukiln::u32 layout, float limit, float alpha, float beta) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const GateUpSource source{products, 2 * static_cast<i64>(width), width,
                            layout,   kSwiGlu,                     SwiGlu::of(limit, alpha, beta)};
  quantize_tiles(codes, scales, source, *tile_count * kAtomRows, width, {gsa[0], gsa[1]});
}

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kCombineThreads)
    moe_combine_rows(cukiln::u16* output, const cukiln::u16* products, const float* topk_weights,
                     const int* rows, cukiln::u32 topk, cukiln::u32 columns) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  const u32 token = blockIdx.x;
  const u32 column = (blockIdx.y * kCombineThreads + threadIdx.x) * 8;
  if (column >= columns) return;
  float sum[8] = {};
  // Loads without branches, so that several slots are in flight.
#pragma unroll 4
  for (u32 rank = 0; rank < topk; ++rank) {
    const u32 slot = token * topk + rank;
    const int row = rows[slot];
    const bool valid = row >= 0;
    const float weight = valid ? topk_weights[slot] : 0.0f;
    uint4 value = {0, 0, 0, 0};
    if (valid) {
      value = *reinterpret_cast<const uint4*>(products + static_cast<u64>(row) * columns + column);
    }
    const u32 pairs[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      sum[2 * i] = multiply_add_rn(weight, __uint_as_float(pairs[i] << 16), sum[2 * i]);
      sum[2 * i + 1] = multiply_add_rn(weight, __uint_as_float(pairs[i] & 0xFFFF0000u), sum[2 * i + 1]);
    }
  }
  uint4 rounded;
  rounded.x = pack_bf16x2(sum[0], sum[1]);
  rounded.y = pack_bf16x2(sum[2], sum[3]);
  rounded.z = pack_bf16x2(sum[4], sum[5]);
  rounded.w = pack_bf16x2(sum[6], sum[7]);
  *reinterpret_cast<uint4*>(output + static_cast<u64>(token) * columns + column) = rounded;
}
