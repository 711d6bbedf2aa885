// moe_route: the first step of a mixture of experts. Sorts tokens by expert and quantises them.
//
//   What: the first `sorters` thread blocks sort the valid slots by expert into tiles (slots, positions, tiles:
//     moe_tiles.cuh); the others quantise the tokens as quantize_nvfp4_from_buffer does, but with linear
//     block scales.
//   A slot is valid if 0 <= id < global_experts and 0 <= expert < experts, where expert is
//     expert_map[id], or id where expert_map is null. All others are skipped: their position is -1.
//   Shapes: hidden bf16 [tokens, columns], global_scale {encode, decode}, topk_ids int32 [tokens, topk],
//     expert_map int32 [global_experts] or null. Outputs: tile_count {tiles, positions}; tiles, at
//     most min(slots, slots / tile_tokens + experts); slots [position] -> slot; positions [slot] ->
//     position or -1; data [tokens, columns / 2]; scales UE4M3 [tokens, columns / 16].
//   Limits: columns a multiple of 16, experts at most 1024, tokens * topk below 2^31.
//   Launch: block (256, 1, 1), grid (sorters and any number that quantise, 1, 1). With sorters alone data to
//     global_scale are not used. Every thread block that sorts reads all of topk_ids and counts the slots of
//     each expert, so that none waits for another; it then places its share of the slots.
//   Determinism: a stable counting sort; atomics count only.
//
// moe_quantize_rows: quantises what lies between the two GEMMs, each row with a global scale of its own, so
// that a row's bytes do not depend on others.
//
//   What: row_decode[r] is the decode scale of row r's amax, as amax_gsa has it with the divisor 2688; data and scales
//     are the row's as quantize_nvfp4_from_buffer makes them with that global scale, but for linear block scales.
//   Shapes: values bf16 [rows, columns]; data [rows, columns / 2], scales [rows, columns / 16], row_decode
//     float [rows]; rows from *row_count on are not read, nor written.
//   Limits: columns a multiple of 16. Launch: block (128, 1, 1), any grid.
//   NaN: a row with a NaN has a NaN scale. An amax of 0 or infinity has decode 1.
//
// Alignment: 16 bytes, except ids, weights and scales.
// Source: vLLM, moe_align_block_size, for the tiles.
#include "dependent_launch.cuh"
#include "moe_routing.cuh"
#include "moe_signatures.cuh"
#include "moe_tiles.cuh"
#include "quantize_tiles.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kRouteThreads = 256;
constexpr u32 kExpertsPerThread = kMaxExperts / kRouteThreads;
using PositionCounts = SlotCounts<kRouteThreads, u64>;  // positions and tiles of a warp's experts

// Gives each expert its positions and its tiles: `before` becomes the position of the first of the block's own
// slots. The thread blocks that sort, `sorters`, write the list of tiles together.
__device__ __forceinline__ void place_experts(PositionCounts& counts, MoeTile* tiles, u32* tile_count,
                                              u32 tile_tokens, u32 sorters) {
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;
  // Sizes of the thread's experts: positions (low half) and tiles (high half).
  u64 sizes[kExpertsPerThread];
  u64 sum = 0;
#pragma unroll
  for (u32 i = 0; i < kExpertsPerThread; ++i) {
    const u32 expert = threadIdx.x * kExpertsPerThread + i;
    const u32 positions = counts.before[expert] + counts.others[expert];
    sizes[i] = positions | static_cast<u64>((positions + tile_tokens - 1) / tile_tokens) << 32;
    sum += sizes[i];
  }
  const u64 inclusive = sum_of_lanes(sum);
  if (lane == 31) counts.warp_sums[warp] = inclusive;
  __syncthreads();
  u64 next = inclusive - sum;
#pragma unroll 1
  for (u32 w = 0; w < warp; ++w) next += counts.warp_sums[w];
  if (blockIdx.x == 0 && threadIdx.x == kRouteThreads - 1) {
    tile_count[0] = static_cast<u32>((next + sum) >> 32);
    tile_count[1] = static_cast<u32>(next + sum);
  }
#pragma unroll
  for (u32 i = 0; i < kExpertsPerThread; ++i) {
    const u32 expert = threadIdx.x * kExpertsPerThread + i;
    const u32 first = static_cast<u32>(next);
    const u32 end = static_cast<u32>(next + sizes[i]);
    counts.before[expert] += first;
    for (u32 own = blockIdx.x; own < static_cast<u32>(sizes[i] >> 32); own += sorters) {
      const u32 position = first + own * tile_tokens;
      tiles[static_cast<u32>(next >> 32) + own] = {expert, position, min(tile_tokens, end - position), 0};
    }
    next += sizes[i];
  }
  __syncthreads();
}

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kRouteThreads, 4)
    moe_route(cukiln::nvfp4::MoeTile* tiles, cukiln::u32* tile_count, cukiln::u32* slots,
              int* positions, cukiln::u8* data, cukiln::u8* scales, const cukiln::u16* hidden,
              const float* global_scale, const int* topk_ids, const int* expert_map, cukiln::u32 tokens,
              cukiln::u32 topk, cukiln::u32 columns, cukiln::u32 global_experts,
              cukiln::u32 experts, cukiln::u32 tile_tokens, cukiln::u32 sorters) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  if (blockIdx.x < sorters) {
    __shared__ PositionCounts counts;
    const Routing routing{topk_ids, expert_map, tokens * topk, global_experts, experts};
    const u32 share = (routing.slots + sorters - 1) / sorters;
    const u32 begin = min(blockIdx.x * share, routing.slots);
    const u32 end = min(begin + share, routing.slots);
    count_slots(counts, routing, begin);
    place_experts(counts, tiles, tile_count, tile_tokens, sorters);
    if (threadIdx.x >= 32) return;
    place_slots(counts, routing, begin, end, [&](u32 slot, int position) {
      positions[slot] = position;
      if (position >= 0) slots[position] = slot;
    });
    return;
  }
  const float scale_factor = block_scale_factor(global_scale[kEncode]);
  const float decode = global_scale[kDecode];
  const u64 blocks = static_cast<u64>(tokens) * (columns / kBlockColumns);
  for (u64 block = static_cast<u64>(blockIdx.x - sorters) * kRouteThreads + threadIdx.x; block < blocks;
       block += static_cast<u64>(gridDim.x - sorters) * kRouteThreads) {
    u32 pairs[8];
    uint2 packed;
    load_16_bf16(hidden + block * kBlockColumns, pairs);
    scales[block] = static_cast<u8>(quantize_block(pairs, scale_factor, decode, &packed));
    reinterpret_cast<uint2*>(data)[block] = packed;
  }
}
static_assert(cukiln::kIsSame<decltype(moe_route), cukiln::signatures::MoeRoute>);

namespace cukiln {
namespace nvfp4 {

constexpr u32 kQuantizeRowsThreads = 128;
constexpr float kRowDivisor = 2688.0f;  // 448 * 6, the largest scale and element

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kQuantizeRowsThreads)
    moe_quantize_rows(cukiln::u8* data, cukiln::u8* scales, float* row_decode,
                      const cukiln::bf16* values, const cukiln::u32* row_count, cukiln::u32 columns) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  __shared__ u32 warp_amax[kQuantizeRowsThreads / 32];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const u32 blocks = columns / kBlockColumns;
  const u32 rows = *row_count;
  for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
    const bf16* const from = values + static_cast<u64>(row) * columns;
    u32 pairs[8];
    u32 amax = 0;
    for (u32 block = threadIdx.x; block < blocks; block += kQuantizeRowsThreads) {
      load_16_bf16(from + block * kBlockColumns, pairs);
      amax = max(amax, amax_of(pairs));
    }
    amax = __reduce_max_sync(~0u, amax);
    __syncthreads();  // the previous row's maxima have been read
    if (threadIdx.x % 32 == 0) warp_amax[threadIdx.x / 32] = amax;
    __syncthreads();
    amax = max(max(warp_amax[0], warp_amax[1]), max(warp_amax[2], warp_amax[3]));
    const GlobalScale scale = global_scale_of(__uint_as_float(amax), kRowDivisor);
    const float scale_factor = block_scale_factor(scale.encode);
    if (threadIdx.x == 0) row_decode[row] = scale.decode;
    for (u32 block = threadIdx.x; block < blocks; block += kQuantizeRowsThreads) {
      uint2 packed;
      load_16_bf16(from + block * kBlockColumns, pairs);
      const u64 at = static_cast<u64>(row) * blocks + block;
      scales[at] = static_cast<u8>(quantize_block(pairs, scale_factor, scale.decode, &packed));
      reinterpret_cast<uint2*>(data)[at] = packed;
    }
  }
}
static_assert(cukiln::kIsSame<decltype(moe_quantize_rows), cukiln::signatures::MoeQuantizeRows>);
