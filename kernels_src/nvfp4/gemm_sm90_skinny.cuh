// The W4A16 GEMM for 17 to 128 tokens: wgmma with the weights dequantised in registers, all of K's
// loads in flight early, and little that is fixed.
//
// A tile is all tokens by 64 rows of B. Its K is split among the CTAs of a cluster, and a CTA's
// stages of 128 of K among its consumer warpgroups, each of which multiplies every kWarpgroups-th:
// several warpgroups hide one another's latencies, where one tile of many rows for all of them
// would be too large for few tokens. Each converts its weights in K's natural order
// (dequantize_byte) into wgmma's register operand (M, 64 rows); tokens are N.
//
// Weights, tokens and block scales have a producer warp each: a thread issues a load in some 100
// clocks, and the tokens' first loads, which wait for the preceding kernel, would queue behind
// those of all weights.
//
// At the end the warpgroups' sums are added in shared memory, then those of the cluster's CTAs,
// each of which has a share of the tile: the others send theirs by st.async, whose bytes complete
// at the owner's mbarrier. One relaxed barrier of the cluster, behind the last MMAs, says that the
// stages' memory is free for them. The order of additions is fixed.
//
// Nothing is divided: a division takes some hundred clocks, a tenth of what a short GEMM takes.
#pragma once

#include "alpha.cuh"
#include "async_copy.cuh"
#include "cluster.cuh"
#include "gemm_sm90_dequantize.cuh"
#include "pipeline.cuh"
#include "wgmma.cuh"

namespace cukiln {
namespace nvfp4 {

// What the GEMM computes: output = tokens * weights^T, scaled.
struct SkinnyProblem {
  u16* output;  // [tokens, rows], each output_stride elements apart
  const TensorMap* token_map;
  const TensorMap* weight_map;
  const u8* row_scales;  // block scales of the weights
  const float* b_global_scale;
  const u16* bias;  // [rows], or null
  u32 tokens;
  u32 rows;
  u32 columns;
  u32 output_stride;  // elements from a token's results to the next one's
  bool constant_b;    // the preceding kernel, amax kernels not counted, does not write the weights
};

// kTokens: of a tile, and at most of the problem. kWarpgroups: consumers. kBlocksPerSm: occupancy.
// With two the next kernel of a chain loads weights while this one ends.
template <u32 kTokens, u32 kWarpgroups, u32 kStages, u32 kBlocksPerSm>
struct SkinnyGemm {
  using Operand = Bf16;
  static constexpr u32 kRows = 64;  // of a tile
  static constexpr u32 kConsumerThreads = 128 * kWarpgroups;
  static constexpr u32 kThreads = 128 + kConsumerThreads;
  static constexpr u32 kProducerRegisters = 40;  // for setmaxnreg
  static constexpr u32 kConsumerRegisters = kBlocksPerSm == 2  ? 96
                                            : kWarpgroups == 2 ? 232
                                                               : 152;
  // Stages behind the ring's whose weights are prefetched into L2 while the preceding kernel ends:
  // with two thread blocks on an SM one has the time. Not where K has more left: eight are few.
  static constexpr u32 kPrefetchedStages = kBlocksPerSm == 2 ? 8 : 0;
  // A stage: two boxes of tokens, 64 of K each, then the weights' data, then their block scales:
  // two whole atoms, of which the tile has half.
  static constexpr u32 kTokenBoxBytes = kTokens * 128;
  static constexpr u32 kDataBytes = kRows * 64;
  static constexpr u32 kDataOffset = 2 * kTokenBoxBytes;
  static constexpr u32 kScalesOffset = kDataOffset + kDataBytes;
  static constexpr u32 kStageBytes = kScalesOffset + 2 * kAtomBytes;
  // Sums of a warpgroup, in the stages' memory. + 4 avoids bank conflicts.
  static constexpr u32 kPitch = kRows + 4;  // floats of a token
  static constexpr u32 kPartialBytes = kTokens * kPitch * 4;
  static constexpr u32 kTileBytes = kTokens * kRows * 4;  // of sums
  // Those of the cluster's other CTAs, behind the warpgroups'. At most three quarters of a tile.
  static constexpr u32 kReceivedOffset = kWarpgroups * kPartialBytes;
  static constexpr u32 kSharedBytes = 1024 + kStages * kStageBytes + 16 * kStages + 16;
  static constexpr u32 kItems = kTokens * kRows / 4;  // of four sums
  static_assert(kWarpgroups == 2 || (kWarpgroups == 3 && kBlocksPerSm == 1),
                "registers are for two warpgroups, or for three with an SM of their own");
  static_assert(kReceivedOffset + kTileBytes / 4 * 3 <= kStages * kStageBytes,
                "sums reuse the stages' memory");
  static_assert(kStageBytes % 1024 == 0, "the alignment of TMA's swizzle");
  // A warpgroup that waits for a pass over the ring must have waited for the one before: parity has
  // one bit, and loads complete in any order.
  static_assert(kStages % kWarpgroups == 0,
                "a stage's memory is the same warpgroup's in each pass");

  // Computes the tiles of this CTA, or with the rest of its cluster each tile's sums over all of K.
  static __device__ __forceinline__ void run(const SkinnyProblem& problem) {
    extern __shared__ uint4 bytes[];
    const u32 ring = (shared_address(bytes) + 1023) & ~1023u;
    const u32 full = ring + kStages * kStageBytes;
    const u32 empty = full + 8 * kStages;
    const Shared shared{ring, full, empty, empty + 8 * kStages, empty + 8 * kStages + 8};
    // The shuffle shows the compiler that the number is the same in the whole warp.
    const u32 warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x >> 5, 0);
    if (threadIdx.x == 32) {
      prefetch_tensormap(problem.token_map);
      prefetch_tensormap(problem.weight_map);
    }
    if (threadIdx.x == 0) {
#pragma unroll
      for (u32 i = 0; i < kStages; ++i) {
        mbarrier_init(shared.full + 8 * i, kProducers);
        mbarrier_init(shared.empty + 8 * i,
                      4);  // a lane of each warp of the warpgroup that has the stage
      }
      mbarrier_init(shared.tile_done, kConsumerThreads);
      mbarrier_init(shared.sums_received, 1);
      mbarrier_init_fence();
      const u32 own_bytes = kTileBytes >> log_cluster_size();
      if (own_bytes < kTileBytes)
        mbarrier_arrive_expect(shared.sums_received, kTileBytes - own_bytes);
    }
    __syncthreads();
    const Tiles tiles(problem);
    if (warp < 4) {
      warpgroup_reg_dealloc<kProducerRegisters>();
      if (warp < kProducers && elect_one_sync()) run_producer(warp, shared, problem, tiles);
      __syncwarp();
      griddepcontrol_wait();
    } else {
      warpgroup_reg_alloc<kConsumerRegisters>();
      griddepcontrol_wait();
      griddepcontrol_launch_dependents();
      run_consumer(warp - 4, shared, problem, tiles);
    }
  }

 private:
  static constexpr u32 kWeights = 0;  // producer warps
  static constexpr u32 kTokenLoads = 1;
  static constexpr u32 kProducers = 3;

  // Addresses in shared memory.
  struct Shared {
    u32 ring;           // kStages stages, 1024-byte aligned
    u32 full;           // barriers: the stage is loaded
    u32 empty;          // barriers: the stage's MMAs are complete
    u32 tile_done;      // barrier: the stages' memory may be loaded again
    u32 sums_received;  // barrier, completed by the other CTAs' stores
  };

  // log2, of a size of 1, 2 or 4.
  static __device__ __forceinline__ u32 log_cluster_size() { return cluster_size() >> 1; }

  // The static persistent schedule: tiles first, first + step, ... of this CTA, or of its cluster,
  // whose CTAs split K of its only tile. A tile has all tokens.
  struct Tiles {
    u32 count;
    u32 rank;        // in the cluster
    u32 log_splits;  // CTAs in the cluster
    u32 begin;       // groups of 128 of K of this CTA: [begin, end)
    u32 end;
    u32 first;
    u32 step;

    __device__ __forceinline__ explicit Tiles(const SkinnyProblem& problem)
        : count((problem.rows + kRows - 1) / kRows),
          rank(block_rank_in_cluster()),
          log_splits(log_cluster_size()),
          begin(groups(problem) * rank >> log_splits),
          end(groups(problem) * (rank + 1) >> log_splits),
          first(blockIdx.x >> log_splits),
          step(gridDim.x >> log_splits) {}

    static __device__ __forceinline__ u32 groups(const SkinnyProblem& problem) {
      return (problem.columns + kGroupK - 1) / kGroupK;
    }
    __device__ __forceinline__ u32 splits() const { return 1u << log_splits; }
  };

  // Block scales of a group of a tile.
  struct Scales {
    const u8* from;
    u32 bytes;

    __device__ __forceinline__ Scales(const SkinnyProblem& problem, u32 row, u32 group) {
      const u32 k_atoms = scale_atoms(problem.columns);
      from = problem.row_scales +
             (static_cast<u64>(row / kAtomRows) * k_atoms + 2 * group) * kAtomBytes;
      bytes = min(2u, k_atoms - 2 * group) * kAtomBytes;
    }
  };

  // One thread of each producer warp: loads its part of the stages of every tile.
  static __device__ __forceinline__ void run_producer(u32 part, const Shared& shared,
                                                      const SkinnyProblem& problem,
                                                      const Tiles& tiles) {
    if (part == kTokenLoads) {
      griddepcontrol_wait();
    } else if (!problem.constant_b) {
      prefetch(part, problem, tiles, 0);
      griddepcontrol_wait();
    }
    // Of the box: where a tile has more tokens than there are, theirs is whatever memory held, and
    // so are their sums, which are not stored. TMA takes longer to fill a box with zeros.
    const u32 token_bytes = min(problem.tokens, kTokens) * 128;
    auto pipe = PipelineState<kStages>::producer_start();
    u32 done = 0;
    for (u32 tile = tiles.first; tile < tiles.count; tile += tiles.step) {
      const u32 row = tile * kRows;
      if (tile != tiles.first) mbarrier_wait(shared.tile_done, done++ & 1);
#pragma unroll 1
      for (u32 group = tiles.begin; group < tiles.end; ++group, pipe.advance()) {
        const u32 to = shared.ring + pipe.index * kStageBytes;
        const u32 barrier = shared.full + 8 * pipe.index;
        if (kPrefetchedStages > 0 && part != kTokenLoads && problem.constant_b &&
            group == tiles.begin + kStages && tile == tiles.first) {
          prefetch(part, problem, tiles, kStages);
        }
        mbarrier_wait(shared.empty + 8 * pipe.index, pipe.phase);
        if (part == kWeights) {
          mbarrier_arrive_expect(barrier, kDataBytes);
          tma_load<1>(to + kDataOffset, problem.weight_map, group * 64, row, barrier);
        } else if (part == kTokenLoads) {
          mbarrier_arrive_expect(barrier, 2 * token_bytes);
          tma_load<1>(to, problem.token_map, group * kGroupK, 0, barrier);
          tma_load<1>(to + kTokenBoxBytes, problem.token_map, group * kGroupK + 64, 0, barrier);
        } else {
          const Scales scales(problem, row, group);
          mbarrier_arrive_expect(barrier, scales.bytes);
          bulk_copy(to + kScalesOffset, scales.from, scales.bytes, barrier);
        }
      }
    }
  }

  // Prefetches weights of the first tile from stage `from` on into L2, while the preceding kernel
  // ends and may write them.
  static __device__ __forceinline__ void prefetch(u32 part, const SkinnyProblem& problem,
                                                  const Tiles& tiles, u32 from) {
    if (tiles.first >= tiles.count) return;
    const u32 row = tiles.first * kRows;
    const u32 ring_end = tiles.begin + kStages;
    const u32 end = tiles.end <= ring_end + kPrefetchedStages ? tiles.end : ring_end;
#pragma unroll 1
    for (u32 group = tiles.begin + from; group < end; ++group) {
      const Scales scales(problem, row, group);
      if (part == kWeights) {
        tma_prefetch(problem.weight_map, group * 64, row);
      } else {
        bulk_prefetch(scales.from, scales.bytes);
      }
    }
  }

  // A consumer thread's place in the tile: as PrefillGemm's Lane, of one tile of 64 rows.
  struct Lane {
    u32 warpgroup;  // of the consumers
    u32 lane;
    u32 t;    // lane % 4
    u32 row;  // the lane's first row in the tile; the other one is 32 further
    u32 selector;
    u32 bytes_at[4];  // in a stage: for each word of the first row, the lane's byte

    __device__ __forceinline__ explicit Lane(u32 warp)
        : warpgroup(warp / 4),
          lane(threadIdx.x & 31),
          t(lane & 3),
          row(warp % 4 * 8 + (lane >> 2)),
          selector(Operand::selector(t)) {
      const u32 data_at = kDataOffset + row * 64;
#pragma unroll
      for (u32 w = 0; w < 4; ++w) bytes_at[w] = (data_at + t) ^ (data_at >> 3 & 0x30) ^ (w * 16);
    }
  };

  using Sums = float[kTokens / 2];
  using Alpha = GemmAlpha<Operand>;

  // The warpgroups: multiply tile after tile and store the results.
  static __device__ __forceinline__ void run_consumer(u32 warp, const Shared& shared,
                                                      const SkinnyProblem& problem,
                                                      const Tiles& tiles) {
    const Lane lane(warp);
    const Alpha alpha{1.0f, problem.b_global_scale[kDecode] * Operand::kWeightFactor};
    u32 stage = 0;  // the tile's first, counted from the first tile's
    for (u32 tile = tiles.first; tile < tiles.count; tile += tiles.step) {
      Sums sum;
      run_mma(sum, stage, shared, problem.columns, tiles, tile * kRows, lane);
      stage += tiles.end - tiles.begin;
      const bool split = tiles.log_splits > 0;
      if (split) cluster_arrive_relaxed();  // this thread's MMAs have read the ring
      keep_partial(sum, shared, lane);
      if (split) {  // a cluster has one tile
        store_split_tile(shared, problem, tiles, tile, alpha);
        break;
      }
      for (u32 i = threadIdx.x - 128; i < kItems; i += kConsumerThreads) {
        store(problem, tile, i, partial_sum(shared, i), alpha);
      }
      async_proxy_fence();  // TMA overwrites what these threads wrote and read
      mbarrier_arrive_cta(shared.tile_done);
    }
  }

  // Multiplies the stages of one tile that are this warpgroup's.
  static __device__ __forceinline__ void run_mma(Sums& sum, u32 first_stage, const Shared& shared,
                                                 u32 columns, const Tiles& tiles, u32 first_row,
                                                 const Lane& lane) {
    constexpr u32 kDescriptorHigh = 64u | 1u << 30;  // of wgmma_descriptor
#pragma unroll
    for (u32 j = 0; j < kTokens / 2; ++j) sum[j] = 0.0f;
    // Rows 64 to 127 of an atom have their scales 8 bytes further.
    const u32 scales_at =
        kScalesOffset + lane.t / 2 * kAtomBytes + lane.row * 16 + first_row / 64 % 2 * 8;
    u32 slot = (first_stage + lane.warpgroup) % kStages;
    u32 phase = (first_stage + lane.warpgroup) / kStages & 1;
    u32 last_empty = 0;  // barrier of the stage before
    u32 batch[8][4];     // dequantised weights of a stage: eight MMAs
#pragma unroll 1
    for (u32 group = tiles.begin + lane.warpgroup; group < tiles.end; group += kWarpgroups) {
      const u32 from = shared.ring + slot * kStageBytes;
      mbarrier_wait(shared.full + 8 * slot, phase);
      const u32 first_scales = load_shared_word(from + scales_at);
      const u32 second_scales = load_shared_word(from + scales_at + 4);
      const bool inside = group * kGroupK + lane.t * kLaneK < columns;  // padding may be NaN
      const Operand::LaneScales scales[2] = {
          Operand::lane_scales(inside ? first_scales : 0, lane.selector),
          Operand::lane_scales(inside ? second_scales : 0, lane.selector)};
      const u32 tokens = from >> 4 | 1u << 16;
      // The registers may be overwritten, and the stage before: its MMAs had all that its loads read. No
      // fence: the loads in flight are of this stage.
      wgmma_wait<0>();
      if (last_empty != 0 && lane.lane == 0) mbarrier_arrive_cta(last_empty);
#pragma unroll
      for (u32 w = 0; w < 4; ++w) {
        const u32 at = from + lane.bytes_at[w];
#pragma unroll
        for (u32 row = 0; row < 2; ++row) {
          // Of a row's four lanes each has converted the scales of 32 columns.
          const u32 of_two = __shfl_sync(0xFFFFFFFFu, scales[row], (lane.lane & 28) + w);
#pragma unroll
          for (u32 i = 0; i < 4; ++i) {
            batch[2 * w + i / 2][i % 2 * 2 + row] = Operand::dequantize_byte(
                load_shared_byte(at + row * 32 * 64 + i * 4), of_two, i / 2);
          }
        }
      }
      wgmma_fence();
#pragma unroll
      for (u32 mma = 0; mma < 8; ++mma) {
        const u32 low = tokens + (mma / 4 * kTokenBoxBytes + mma % 4 * 32) / 16;
        Wgmma<kTokens, Operand>::run(sum, batch[mma],
                                     static_cast<u64>(kDescriptorHigh) << 32 | low);
      }
      wgmma_commit();
      last_empty = shared.empty + 8 * slot;
      slot += kWarpgroups;
      if (slot >= kStages) {
        slot -= kStages;
        phase ^= 1;
      }
    }
    wgmma_wait<0>();
    if (last_empty != 0 && lane.lane == 0) mbarrier_arrive_cta(last_empty);
  }

  // Writes a warpgroup's sums to the stages' memory, and waits until all have.
  static __device__ __forceinline__ void keep_partial(const Sums& sum, const Shared& shared,
                                                      const Lane& lane) {
    named_barrier_sync<kConsumerThreads>(1);  // all stages have been read
    const u32 partial = shared.ring + lane.warpgroup * kPartialBytes;
#pragma unroll
    for (u32 j = 0; j < kTokens / 2; ++j) {
      const u32 token = j / 4 * 8 + lane.t * 2 + j % 2;
      const u32 row = lane.row + j / 2 % 2 * 32;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(partial + (token * kPitch + row) * 4),
                   "f"(sum[j])
                   : "memory");
    }
    named_barrier_sync<kConsumerThreads>(1);
  }

  static __device__ __forceinline__ float4 load_sums(u32 at) {
    const uint4 four = load_shared(at);
    return {__uint_as_float(four.x), __uint_as_float(four.y), __uint_as_float(four.z),
            __uint_as_float(four.w)};
  }

  static __device__ __forceinline__ void add(float4& total, const float4& more) {
    total.x += more.x;
    total.y += more.y;
    total.z += more.z;
    total.w += more.w;
  }

  // Four rows' sums of all warpgroups. Item i: token i / 16, rows from i % 16 * 4 on.
  static __device__ __forceinline__ float4 partial_sum(const Shared& shared, u32 i) {
    const u32 at = shared.ring + (i / (kRows / 4) * kPitch + i % (kRows / 4) * 4) * 4;
    float4 total = load_sums(at);
#pragma unroll
    for (u32 warpgroup = 1; warpgroup < kWarpgroups; ++warpgroup) {
      add(total, load_sums(at + warpgroup * kPartialBytes));
    }
    return total;
  }

  // Scales, adds the bias, rounds and stores an item.
  static __device__ __forceinline__ void store(const SkinnyProblem& problem, u32 tile, u32 i,
                                               const float4& sums, const Alpha& alpha) {
    const u32 token = i / (kRows / 4);
    const u32 row = tile * kRows + i % (kRows / 4) * 4;
    if (token >= problem.tokens || row >= problem.rows) return;
    uint2 bias = {0, 0};
    if (problem.bias != nullptr) bias = __ldg(reinterpret_cast<const uint2*>(problem.bias + row));
    uint2 packed;
    packed.x = pack_bf16x2(alpha(sums.x) + low_bf16(bias.x), alpha(sums.y) + high_bf16(bias.x));
    packed.y = pack_bf16x2(alpha(sums.z) + low_bf16(bias.y), alpha(sums.w) + high_bf16(bias.y));
    *reinterpret_cast<uint2*>(problem.output + static_cast<u64>(token) * problem.output_stride +
                              row) = packed;
  }

  // Epilogue of a tile whose K the CTAs of a cluster have split: sends the others their shares, and
  // stores its own one, added up in the order of the ranks. A CTA receives in that order, too.
  static __device__ __forceinline__ void store_split_tile(const Shared& shared,
                                                          const SkinnyProblem& problem,
                                                          const Tiles& tiles, u32 tile,
                                                          const Alpha& alpha) {
    const u32 thread = threadIdx.x - 128;
    const u32 splits = tiles.splits();
    const u32 share = kItems >> tiles.log_splits;
    const u32 received = shared.ring + kReceivedOffset;
    cluster_wait();
    for (u32 r = 1; r < splits; ++r) {
      const u32 to = (tiles.rank + r) & (splits - 1);
      const u32 slot = tiles.rank - (tiles.rank > to ? 1 : 0);
      const u32 there = address_in_rank(received + slot * share * 16, to);
      const u32 barrier = address_in_rank(shared.sums_received, to);
      for (u32 i = thread; i < share; i += kConsumerThreads) {
        store_dsmem_async(there + i * 16, barrier, partial_sum(shared, to * share + i));
      }
    }
    for (u32 i = thread; i < share; i += kConsumerThreads) {
      const float4 own = partial_sum(shared, tiles.rank * share + i);
      mbarrier_wait(shared.sums_received, 0);
      float4 total = tiles.rank == 0 ? own : load_sums(received + i * 16);
      for (u32 r = 1; r < splits; ++r) {
        const u32 slot = r - (r > tiles.rank ? 1 : 0);
        add(total, r == tiles.rank ? own : load_sums(received + (slot * share + i) * 16));
      }
      store(problem, tile, tiles.rank * share + i, total, alpha);
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
