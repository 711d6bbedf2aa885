// moe_route: the first step of a mixture of experts. Sorts tokens by expert and quantises them.
//
//   What: thread block 0 sorts the valid slots by expert into tiles (slots, positions, tiles:
//     moe_tiles.cuh); the others quantise the tokens as quantize_nvfp4_from_buffer does, but with linear
//     block scales.
//   A slot is valid if 0 <= id < global_experts and 0 <= expert < experts, where expert is
//     expert_map[id], or id where expert_map is null. All others are skipped: their position is -1.
//   Shapes: hidden bf16 [tokens, columns], global_scale {encode, decode}, topk_ids int32 [tokens, topk],
//     expert_map int32 [global_experts] or null. Outputs: tile_count {tiles, positions}; tiles, at
//     most min(slots, slots / tile_tokens + experts); slots [position] -> slot; positions [slot] ->
//     position or -1; data [tokens, columns / 2]; scales UE4M3 [tokens, columns / 16].
//   Limits: columns a multiple of 16, experts at most 1024, tokens * topk below 2^31.
//   Launch: block (256, 1, 1), grid (1 and any number that quantise, 1, 1). With 1 alone data to
//     global_scale are not used.
//   Determinism: a stable counting sort; no atomics.
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
constexpr u32 kRouteWarps = kRouteThreads / 32;
constexpr u32 kExpertsPerThread = kMaxExperts / kRouteThreads;
static_assert(kExpertsPerThread == 4, "a thread's counts are one vector");

// A stable counting sort by one thread block; each warp has consecutive slots.
__device__ __forceinline__ void route(MoeTile* tiles, u32* tile_count, u32* slots, int* positions,
                                      const Routing& routing, u32 tile_tokens) {
  // By warp; after the first pass the warp's next index in the expert.
  __shared__ u32 counts[kRouteWarps][kMaxExperts];
  __shared__ u32 first_position[kMaxExperts + 1];
  __shared__ u32 first_tile[kMaxExperts];
  __shared__ u64 warp_sums[kRouteWarps];
  __shared__ u16 staged[kRouteWarps][32 * kStagedRows];
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;
  const u32 lower_lanes = (1u << lane) - 1;
  const u32 slots_per_warp = (routing.slots + kRouteThreads - 1) / kRouteThreads * 32;
  const u32 begin = min(warp * slots_per_warp, routing.slots);
  const u32 end = min(begin + slots_per_warp, routing.slots);
  const u32 warps = (routing.slots + slots_per_warp - 1) / slots_per_warp;  // with slots
  uint4* const own_counts = reinterpret_cast<uint4*>(&counts[0][0]) + threadIdx.x;

  const bool has_experts = threadIdx.x * kExpertsPerThread < routing.experts;
#pragma unroll 1
  for (u32 w = 0; has_experts && w < warps; ++w) own_counts[w * kRouteThreads] = {0, 0, 0, 0};
  __syncthreads();

  // Exclusive prefix sums: from the counts to each expert's first position and first tile.
  const auto place_experts = [&] {
    // Sizes of the thread's four experts: positions (low half) and tiles (high half).
    u64 sizes[kExpertsPerThread] = {};
    u64 sum = 0;
    if (has_experts) {
      uint4 total = {0, 0, 0, 0};
#pragma unroll 1
      for (u32 w = 0; w < warps; ++w) {
        const uint4 count = own_counts[w * kRouteThreads];
        own_counts[w * kRouteThreads] = total;
        total.x += count.x;
        total.y += count.y;
        total.z += count.z;
        total.w += count.w;
      }
      const u32 totals[kExpertsPerThread] = {total.x, total.y, total.z, total.w};
#pragma unroll
      for (u32 i = 0; i < kExpertsPerThread; ++i) {
        sizes[i] = totals[i] | static_cast<u64>((totals[i] + tile_tokens - 1) / tile_tokens) << 32;
        sum += sizes[i];
      }
    }
    const u64 inclusive = sum_of_lanes(sum);
    if (lane == 31) warp_sums[warp] = inclusive;
    __syncthreads();
    u64 next = inclusive - sum;
#pragma unroll 1
    for (u32 w = 0; w < warp; ++w) next += warp_sums[w];
#pragma unroll
    for (u32 i = 0; i < kExpertsPerThread; ++i) {
      first_position[threadIdx.x * kExpertsPerThread + i] = static_cast<u32>(next);
      first_tile[threadIdx.x * kExpertsPerThread + i] = static_cast<u32>(next >> 32);
      next += sizes[i];
    }
    if (threadIdx.x == kRouteThreads - 1) {
      first_position[kMaxExperts] = static_cast<u32>(next);
      tile_count[0] = static_cast<u32>(next >> 32);
      tile_count[1] = static_cast<u32>(next);
    }
    __syncthreads();
  };

  // Pass 0 counts, pass 1 writes. A loop, since compiling the body twice takes NVRTC twice the time.
#pragma unroll 1
  for (u32 pass = 0; pass < 2; ++pass) {
    if (pass == 1) place_experts();
    for_slots(routing, begin, end, staged[warp], [&](u32 slot, u32 expert) {
      const u32 same = lanes_with(expert);
      const bool is_valid = expert != kNoExpert;
      u32 index = 0;
      if (is_valid) index = counts[warp][expert] + __popc(same & lower_lanes);
      __syncwarp();
      if (is_valid && (same & lower_lanes) == 0) counts[warp][expert] += __popc(same);
      if (pass == 0) return;
      if (is_valid) {
        const u32 position = first_position[expert] + index;
        slots[position] = slot;
        positions[slot] = static_cast<int>(position);
        if (index % tile_tokens == 0) {
          tiles[first_tile[expert] + index / tile_tokens] = {
              expert, position, min(tile_tokens, first_position[expert + 1] - position), 0};
        }
      } else if (slot < end) {
        positions[slot] = -1;
      }
    });
    __syncthreads();
  }
}

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kRouteThreads, 4)
    moe_route(cukiln::nvfp4::MoeTile* tiles, cukiln::u32* tile_count, cukiln::u32* slots,
              int* positions, cukiln::u8* data, cukiln::u8* scales, const cukiln::u16* hidden,
              const float* global_scale, const int* topk_ids, const int* expert_map, cukiln::u32 tokens,
              cukiln::u32 topk, cukiln::u32 columns, cukiln::u32 global_experts,
              cukiln::u32 experts, cukiln::u32 tile_tokens) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  if (blockIdx.x == 0) {
    const Routing routing{topk_ids, expert_map, tokens * topk, global_experts, experts};
    route(tiles, tile_count, slots, positions, routing, tile_tokens);
    return;
  }
  const float scale_factor = block_scale_factor(global_scale[kEncode]);
  const float decode = global_scale[kDecode];
  const u64 blocks = static_cast<u64>(tokens) * (columns / kBlockColumns);
  for (u64 block = static_cast<u64>(blockIdx.x - 1) * kRouteThreads + threadIdx.x; block < blocks;
       block += static_cast<u64>(gridDim.x - 1) * kRouteThreads) {
    u32 pairs[8];
    uint2 packed;
    load_16_bf16(hidden + block * kBlockColumns, pairs);
    scales[block] = static_cast<u8>(quantize_block(pairs, scale_factor, decode, &packed));
    reinterpret_cast<uint2*>(data)[block] = packed;
  }
}
static_assert(cukiln::kIsSame<decltype(moe_route), cukiln::signatures::MoeRoute>);
