// moe_route_rows: the first step of a mixture of experts by grouped GEMMs (nvfp4_moe_grouped_up.cu,
// nvfp4_gemm_grouped_*). Sorts slots by expert and writes each token, quantised, to the rows of its slots.
//
//   What: the valid slots of expert e, in order, have the rows from 128 * (tiles of the experts before e) on,
//     and e has as many tiles of 128 rows as they take. The rest of its last tile is padding rows, which are
//     not written: a row of a GEMM's result depends on that row only. A row is its token, quantised as
//     quantize_nvfp4_from_buffer does. Which slots are valid: nvfp4_moe_route.cu. down_global_scales gets the
//     decode scales of all experts; encode is not written. row_states, unless it is null, becomes zeros.
//   Shapes: hidden bf16 [tokens, columns], global_scale {encode, decode}, topk_ids int32 [tokens, topk],
//     expert_map int32 [global_experts] or null. Outputs: data [128 * tiles, columns / 2], scales in swizzled
//     atoms (scale_layout.cuh); row_experts [*tile_count], at most min(slots, slots / 128 + experts);
//     rows [slot] -> row or -1; row_states [128 * tiles, 2].
//   Alignment: 16 bytes for hidden, data and row_states, 4 for scales.
//   Limits: columns a multiple of 64, experts at most 1024, tokens * topk below 2^31.
//   Launch: block (512, 1, 1), any grid; no dynamic shared memory. Every thread block reads all of topk_ids and
//     counts the slots of each expert, so that none waits for another; it then has its share of the tokens.
//   NaN: as quantize_nvfp4_from_buffer, in its own row only.
//   Determinism: a stable counting sort; atomics count only.
// Source: vLLM, moe_align_block_size, for the tiles.
#include "dependent_launch.cuh"
#include "moe_routing.cuh"
#include "moe_signatures.cuh"
#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kRouteRowsThreads = 512;
constexpr u32 kRouteRowsWarps = kRouteRowsThreads / 32;
constexpr u32 kExpertsOfThread = kMaxExperts / kRouteRowsThreads;
using RowCounts = SlotCounts<kRouteRowsThreads, u32>;  // tiles of a warp's experts

// Gives each expert its tiles: `before` becomes the row of the first of the block's own slots. All thread
// blocks write the list of tiles together. Returns the number of tiles.
__device__ __forceinline__ u32 place_tiles(RowCounts& counts, int* row_experts) {
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;
  u32 tiles[kExpertsOfThread];
  u32 sum = 0;
#pragma unroll
  for (u32 i = 0; i < kExpertsOfThread; ++i) {
    const u32 expert = threadIdx.x * kExpertsOfThread + i;
    tiles[i] = scale_atom_rows(counts.before[expert] + counts.others[expert]);
    sum += tiles[i];
  }
  const u32 inclusive = sum_of_lanes(sum);
  if (lane == 31) counts.warp_sums[warp] = inclusive;
  __syncthreads();
  u32 tile = inclusive - sum;
  u32 all = 0;
#pragma unroll
  for (u32 w = 0; w < kRouteRowsWarps; ++w) {
    const u32 of_warp = counts.warp_sums[w];
    if (w < warp) tile += of_warp;
    all += of_warp;
  }
#pragma unroll
  for (u32 i = 0; i < kExpertsOfThread; ++i) {
    const u32 expert = threadIdx.x * kExpertsOfThread + i;
    counts.before[expert] += tile * kAtomRows;
    for (u32 own = blockIdx.x; own < tiles[i]; own += gridDim.x) {
      row_experts[tile + own] = static_cast<int>(expert);
    }
    tile += tiles[i];
  }
  __syncthreads();
  return all;
}

// Fills the states of all rows with zeros. All thread blocks do it together.
__device__ __forceinline__ void clear_row_states(u32* row_states, u32 tiles) {
  constexpr u32 kOfTile = kAtomRows * 2 * sizeof(u32) / sizeof(uint4);
  const u32 first = blockIdx.x * kRouteRowsThreads + threadIdx.x;
  for (u32 i = first; i < tiles * kOfTile; i += gridDim.x * kRouteRowsThreads) {
    reinterpret_cast<uint4*>(row_states)[i] = {0, 0, 0, 0};
  }
}

// Quantises tokens and copies each to the rows of its slots. Four lanes have the four blocks of an atom's row.
__device__ __forceinline__ void write_rows(u8* data, u8* scales, const u16* hidden, const int* rows,
                                           GlobalScale tensor, u32 first_token, u32 tokens, u32 topk,
                                           u32 columns) {
  const float scale_factor = block_scale_factor(tensor.encode);
  const u32 blocks = columns / kBlockColumns;
  const u32 atoms = scale_atoms(columns);
  const u64 items = u64{tokens} * blocks;
  for (u64 first = threadIdx.x / 32 * 32; first < items; first += kRouteRowsThreads) {
    const u64 item = first + threadIdx.x % 32;
    const bool is_item = item < items;
    const u32 token = first_token + (is_item ? static_cast<u32>(item / blocks) : 0);
    const u32 block = is_item ? static_cast<u32>(item % blocks) : 0;
    u32 pairs[8];
    uint2 packed;
    load_16_bf16(hidden + u64{token} * columns + block * kBlockColumns, pairs);
    u32 four = quantize_block(pairs, scale_factor, tensor.decode, &packed) << block % 4 * 8;
    four |= __shfl_xor_sync(~0u, four, 1);
    four |= __shfl_xor_sync(~0u, four, 2);
    if (!is_item) continue;
#pragma unroll 4
    for (u32 rank = 0; rank < topk; ++rank) {
      const int row = rows[u64{token} * topk + rank];
      if (row < 0) continue;
      const u64 to = (static_cast<u64>(row) * columns + block * kBlockColumns) / 2;
      *reinterpret_cast<uint2*>(data + to) = packed;
      if (block % 4 == 0) {
        const u64 offset = scale_byte_offset(static_cast<u32>(row), block, atoms);
        *reinterpret_cast<u32*>(scales + offset) = four;
      }
    }
  }
}

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kRouteRowsThreads, 2)
    moe_route_rows(cukiln::u8* data, cukiln::u8* scales, int* row_experts, cukiln::u32* tile_count,
                   int* rows, float* down_global_scales, cukiln::u32* row_states, const cukiln::u16* hidden,
                   const float* global_scale, const int* topk_ids, const int* expert_map,
                   const float* down_decode, cukiln::u32 tokens, cukiln::u32 topk, cukiln::u32 columns,
                   cukiln::u32 global_experts, cukiln::u32 experts) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  __shared__ RowCounts counts;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const Routing routing{topk_ids, expert_map, tokens * topk, global_experts, experts};
  const u32 tokens_per_block = (tokens + gridDim.x - 1) / gridDim.x;
  const u32 first_token = min(blockIdx.x * tokens_per_block, tokens);
  const u32 own_tokens = min(tokens_per_block, tokens - first_token);

  count_slots(counts, routing, first_token * topk);
  const u32 tiles = place_tiles(counts, row_experts);
  if (row_states != nullptr) clear_row_states(row_states, tiles);
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) *tile_count = tiles;
    for (u32 e = threadIdx.x; e < experts; e += kRouteRowsThreads) {
      down_global_scales[2 * e + kDecode] = down_decode[e];
    }
  }
  if (threadIdx.x < 32) {
    place_slots(counts, routing, first_token * topk, (first_token + own_tokens) * topk,
                [&](u32 slot, int row) { rows[slot] = row; });
  }
  __syncthreads();
  write_rows(data, scales, hidden, rows, {global_scale[kEncode], global_scale[kDecode]}, first_token,
             own_tokens, topk, columns);
}
static_assert(cukiln::kIsSame<decltype(moe_route_rows), cukiln::signatures::MoeRouteRows>);
