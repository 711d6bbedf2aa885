// The prefill GEMM, for many tokens: wgmma with the weights dequantised in registers.
//
// A persistent, warp-specialised kernel. A producer thread fills a ring of stages of 128 of K by
// TMA: a tile of tokens, swizzled, and a tile of NVFP4 weights. Two consumer warpgroups dequantise
// weights into wgmma's register operand (M, 64 rows of B) and multiply by the tokens in shared
// memory (N). Results are transposed through shared memory, so that whole rows of the output are
// stored.
//
// W4A4: `nvfp4_gemm_expand` dequantises the tokens to fp16 before, once, in the lanes' order of K,
// in which a lane's weights of a stage are adjacent. W4A16: tokens are the caller's bf16, so K has
// its natural order, in which a lane has every fourth byte of the weights.
#pragma once

#include "alpha.cuh"
#include "async_copy.cuh"
#include "cluster.cuh"
#include "gemm_sm90_dequantize.cuh"
#include "pipeline.cuh"
#include "wgmma.cuh"

namespace cukiln {
namespace nvfp4 {

// Stores four 8x8 matrices of 16-bit values, transposed. Lane i gives the address of row i % 8 of
// matrix i / 8.
__device__ __forceinline__ void stmatrix_x4_trans(u32 address, u32 m0, u32 m1, u32 m2, u32 m3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(m0), "r"(m1), "r"(m2), "r"(m3)
      : "memory");
}

// Initialises the barriers of a ring's stages: `full`, for the producer and its bytes, and `empty`,
// at which `consumers` threads arrive. Called by every thread of the CTA.
template <u32 kStages>
__device__ __forceinline__ void init_ring(u32 full, u32 empty, u32 consumers) {
  if (threadIdx.x == 0) {
#pragma unroll
    for (u32 i = 0; i < kStages; ++i) {
      mbarrier_init(full + 8 * i, 1);
      mbarrier_init(empty + 8 * i, consumers);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
}

// Registers of a thread, for setmaxnreg, where one producer and two consumer warpgroups are a
// thread block.
template <u32 kBlocksPerSm>
constexpr u32 kProducerRegisters = kBlocksPerSm == 1 ? 40 : 24;
template <u32 kBlocksPerSm>
constexpr u32 kConsumerRegisters = kBlocksPerSm == 1 ? 232 : 104;

// Dequantises tokens [rows, columns] to fp16, each group of 128 columns in the lanes' order,
// zero-padded to whole groups. A thread writes 16 bytes at a time.
__device__ __forceinline__ void expand_tokens(u32* output, const u8* data, const u8* scales,
                                              u32 rows, u32 columns) {
  const u32 groups = (columns + kGroupK - 1) / kGroupK;
  const u32 k_atoms = scale_atoms(columns);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const u64 items = static_cast<u64>(rows) * groups * 16;
  for (u64 item = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; item < items;
       item += static_cast<u64>(gridDim.x) * blockDim.x) {
    const u32 chunk = item & 15;
    const u32 group = item / 16 % groups;
    const u32 row = item / 16 / groups;
    const u8* const row_scales =
        scales + (static_cast<u64>(row / kAtomRows) * k_atoms + group * 2) * kAtomBytes +
        CUKILN_SCALE_ROW_OFFSET(row);
    reinterpret_cast<uint4*>(output)[item] = expand_chunk(
        chunk, data + static_cast<u64>(row) * (columns / 2) + group * 64,
        [&](u32 block) { return row_scales + block / 4 * kAtomBytes + block % 4; },
        columns - group * kGroupK);
  }
}

// Rows of weights that a lane dequantises of a stage: kCount of them, 32 rows apart. `dequantize`
// converts columns 32 * w to 32 * w + 31 of row j: in `pairs` those of two MMAs with k < 8, k >= 8.
template <class Operand, u32 kCount>
struct LaneWeights;

// In the lanes' order of K. `data`, `scales`: shared addresses of the first row's data in the stage
// and of its scales in an atom; scales of the rest are adjacent. `inside`: the lane's columns
// exist; padding may be NaN.
template <u32 kCount>
struct LaneWeights<F16, kCount> {
  uint4 data[kCount];
  F16::LaneScales scales[kCount];

  __device__ __forceinline__ LaneWeights(u32 data_at, u32 scales_at, u32 t, bool inside) {
    const u32 selector = F16::selector(t);
#pragma unroll
    for (u32 j = 0; j < kCount; ++j) {
      data[j] = load_shared(data_at + j * 32 * 64 + t * kLaneBytes);
      const u32 word = load_shared_word(scales_at + j * 4);
      scales[j] = F16::lane_scales(inside ? word : 0, selector);
    }
  }

  __device__ __forceinline__ void dequantize(u32 j, u32 w, u32 (&pairs)[4]) const {
    F16::dequantize(word_of(data[j], w), scales[j], w, pairs);
  }
};

// In K's natural order, with a 64-byte swizzle: of each four bytes, eight columns, lane t has byte
// t. It converts the scales of columns 32 * t to 32 * t + 31 and has those of others from their
// lanes.
template <u32 kCount>
struct LaneWeights<Bf16, kCount> {
  u32 bytes_at[4];  // for each w, of the first row
  Bf16::LaneScales scales[kCount];
  u32 first_lane;  // of the row's four

  __device__ __forceinline__ LaneWeights(u32 data_at, u32 scales_at, u32 t, bool inside)
      : first_lane(threadIdx.x & 28) {
    const u32 selector = Bf16::selector(t);
#pragma unroll
    for (u32 j = 0; j < kCount; ++j) {
      const u32 word = load_shared_word(scales_at + j * 4);
      scales[j] = Bf16::lane_scales(inside ? word : 0, selector);
    }
    const u32 swizzle = data_at >> 3 & 0x30;  // bits 7 and 8, at 4 and 5
#pragma unroll
    for (u32 w = 0; w < 4; ++w) bytes_at[w] = (data_at + t) ^ swizzle ^ (w * 16);
  }

  __device__ __forceinline__ void dequantize(u32 j, u32 w, u32 (&pairs)[4]) const {
    const u32 of_two = __shfl_sync(0xFFFFFFFFu, scales[j], first_lane + w);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      pairs[i] =
          Bf16::dequantize_byte(load_shared_byte(bytes_at[w] + j * 32 * 64 + i * 4), of_two, i / 2);
    }
  }
};

// What the GEMM computes: output = tokens * weights^T, scaled.
struct PrefillProblem {
  u16* output;  // [tokens, rows], each output_stride elements apart
  const TensorMap* token_map;
  const TensorMap* weight_map;
  const u8* row_scales;         // block scales of the weights
  const float* a_global_scale;  // of NVFP4 tokens
  const float* b_global_scale;
  const u16* bias;  // [rows], or null
  u32 tokens;
  u32 rows;
  u32 columns;
  u32 output_stride;  // elements from a token's results to the next one's
  float* partials;    // of helpers: PrefillGemm::kPartialBytes for each tile
  u32 tail_k_groups;  // groups of 128 of K of the tail, which kHelper multiplies
};

enum class Role {
  kAny,     // computes whole tiles, or splits K in a cluster
  kPair,    // splits K in a cluster of two
  kHelped,  // likewise, but for the end of K, of which it adds the helper's sums to its own
  kHelper,  // multiplies that end of one tile after the other, on the SMs that kHelped leaves: a
            // kernel of its own, launched before
};

// An output tile is kTokens by kRows rows of B; kRows is 128 or 256. kBlocksPerSm: occupancy.
template <u32 kTokens, u32 kRows, u32 kStages, u32 kBlocksPerSm = 1, class Operand = F16,
          Role kRole = Role::kAny>
struct PrefillGemm {
  static constexpr bool kQuantizedTokens = kIsSame<Operand, F16>;
  // Whether to wait for the preceding kernel before the first load of tokens. A helper lets the
  // helped kernel start only once all kernels before have completed.
  static constexpr bool kWaitsFirst = !kQuantizedTokens && kRole != Role::kHelped;
  // Of weights, to L2, while the preceding kernel ends. Behind more of them the first loads would
  // wait.
  static constexpr u32 kPrefetchedStages = 4;
  static constexpr u32 kWarpgroups = 2;  // consumers
  static constexpr u32 kConsumerThreads = 128 * kWarpgroups;
  static constexpr u32 kThreads = 128 + kConsumerThreads;
  static constexpr u32 kTiles = kRows / 64 / kWarpgroups;  // of 64 rows, computed by a warpgroup
  // Each warpgroup is one batch of dequantised weights ahead of its MMAs. Or, where dequantisation,
  // which takes longer to bf16, is not longer than they: the warpgroups take turns, one dequantises
  // all of a stage while the other multiplies.
  static constexpr bool kTakesTurns = !kQuantizedTokens && kTokens > 64;
  static constexpr u32 kBatchWords = kTakesTurns        ? 4
                                     : kQuantizedTokens ? 1
                                                        : 2;  // of a lane's four
  static constexpr u32 kBatches = kTakesTurns ? 1 : 2;        // in registers
  // A stage: two boxes of tokens, 64 of K each, then the weights' data, then their block scales.
  static constexpr u32 kTokenBoxBytes = kTokens * 128;
  static constexpr u32 kDataBytes = kRows * 64;
  static constexpr u32 kScaleAtoms = kRows / kAtomRows;
  static constexpr u32 kScaleBytes = 2 * kAtomBytes;  // in one row of atoms
  static constexpr u32 kDataOffset = 2 * kTokenBoxBytes;
  static constexpr u32 kScalesOffset = kDataOffset + kDataBytes;
  static constexpr u32 kStageBytes = kScalesOffset + kScaleAtoms * kScaleBytes;
  static constexpr u32 kOutRows = 64 * kTiles;         // that a warpgroup stores
  static constexpr u32 kOutPitch = kOutRows * 2 + 16;  // bytes of a token in the staging buffer
  static constexpr u32 kOutTokens = kTokens > 128 ? 16 : 32;  // staged at a time
  static constexpr u32 kOutBytes = kOutTokens * kOutPitch;
  static constexpr u32 kSharedBytes =
      1024 + kStages * kStageBytes + kWarpgroups * kOutBytes + 2 * 8 * kStages + 32;
  // Partial sums that a thread sends to another CTA of the cluster: those of 16 tokens.
  static constexpr u32 kShares = kTokens / 16;
  static constexpr u32 kHalf = kShares / 2;
  static constexpr u32 kShareBytes = kTiles * 8 * 4 * kConsumerThreads;
  static_assert(kShares * kShareBytes <= kStages * kStageBytes,
                "partial sums of other CTAs reuse the stages' memory");
  // Whether one stage of the ring holds half of a tile's sums. Two CTAs that split K then exchange
  // halves: each receives the other's sums of its half of the tokens in the stage behind its last.
  static constexpr bool kHalfFitsStage = kShares / 2 * kShareBytes <= kStageBytes;
  // In some kernels for any split the compiler orders the main loop worse beside that epilogue, by
  // up to 4 %: these do not have it. W4A16's 128 tokens have a kernel for pairs instead.
  static constexpr bool kExchangesHalves =
      kRole == Role::kAny
          ? kHalfFitsStage && kRows == 128 &&
                (kQuantizedTokens ? kTokens > 64 : kTokens != 32 && kTokens != 128)
          : kRole != Role::kHelper;
  // The sums of helpers are in the order of the threads: of a warpgroup, a share, four sums.
  static constexpr u32 kPartialBytes = kShares * kShareBytes;
  static_assert(kRole == Role::kAny || kRole == Role::kPair || (kHalfFitsStage && kStages >= 3),
                "the ring has room for the other CTA's and the helper's sums behind its last stage");
  static constexpr u32 kRasterTokenTiles =
      16;  // token tiles of a raster group, which share weights in L2

  // Computes the tiles of this CTA, or with the rest of its cluster each tile's sums over all of K.
  static __device__ __forceinline__ void run(const PrefillProblem& problem) {
    extern __shared__ uint4 bytes[];
    const u32 base = (shared_address(bytes) + 1023) & ~1023u;
    const u32 staging = base + kStages * kStageBytes;
    const u32 full = staging + kWarpgroups * kOutBytes;
    const Shared shared{base,
                        staging,
                        full,
                        full + 8 * kStages,
                        full + 16 * kStages,
                        full + 16 * kStages + 8 * kWarpgroups};
    const TileScheduler tiles(problem);
    if (threadIdx.x == 0) {
#pragma unroll
      for (u32 i = 0; i < kWarpgroups; ++i) {
        mbarrier_init(shared.partials + 8 * i, 1);
        if (tiles.splits > 1) {
          const u32 shares = tiles.first_share(tiles.rank + 1) - tiles.first_share(tiles.rank);
          const u32 others = tiles.splits - 1 + (kRole == Role::kHelped ? 1 : 0);
          mbarrier_arrive_expect(shared.partials + 8 * i,
                                 others * shares * (kShareBytes / kWarpgroups));
        }
      }
      mbarrier_init(shared.ready, 1);
    }
    init_ring<kStages>(shared.full, shared.empty, kConsumerThreads);
    if (tiles.exchange_halves()) cluster_arrive_relaxed();  // the barriers are initialised
    if constexpr (kQuantizedTokens) griddepcontrol_wait();  // nvfp4_gemm_expand

    if (threadIdx.x < 128) {
      warpgroup_reg_dealloc<kProducerRegisters<kBlocksPerSm>>();
      if (threadIdx.x == 0) run_producer(shared, problem, tiles);
    } else {
      warpgroup_reg_alloc<kConsumerRegisters<kBlocksPerSm>>();
      if constexpr (kWaitsFirst) {
        griddepcontrol_wait();
        griddepcontrol_launch_dependents();
      }
      run_consumer(shared, problem, tiles);
    }
  }

 private:
  // Addresses in shared memory.
  struct Shared {
    u32 ring;      // kStages stages, 1024-byte aligned
    u32 staging;   // kOutBytes for each consumer warpgroup
    u32 full;      // barriers: the stage is loaded
    u32 empty;     // barriers: the stage's MMAs are complete
    u32 partials;  // barriers, one a warpgroup: sums of the other CTAs and the helper have arrived
    u32 ready;     // barrier: the other CTA of a pair has room for this one's half of the sums
  };

  struct Origin {
    u32 token;
    u32 row;
  };

  // The static persistent schedule: tiles first, first + step, ... of this CTA, or of its cluster,
  // whose CTAs split K of each tile. Raster groups of kRasterTokenTiles token tiles; within a group
  // row tile after row tile.
  struct TileScheduler {
    u32 token_tiles;
    u32 row_tiles;
    u32 groups;  // of 128 of K, without those of helpers
    u32 rank;    // in the cluster
    u32 splits;  // CTAs in the cluster, which split K
    u32 begin;   // groups of this CTA: [begin, end)
    u32 end;
    u32 first;
    u32 step;

    __device__ __forceinline__ explicit TileScheduler(const PrefillProblem& problem)
        : token_tiles((problem.tokens + kTokens - 1) / kTokens),
          row_tiles((problem.rows + kRows - 1) / kRows),
          groups((problem.columns + kGroupK - 1) / kGroupK -
                 (kRole == Role::kHelped || kRole == Role::kHelper ? problem.tail_k_groups : 0)),
          rank(kRole == Role::kHelper ? 0 : block_rank_in_cluster()),
          splits(kRole == Role::kHelper ? 1 : cluster_size()),
          begin(kRole == Role::kHelper ? groups : groups * rank / splits),
          end(kRole == Role::kHelper ? groups + problem.tail_k_groups
                                     : groups * (rank + 1) / splits),
          first(blockIdx.x / splits),
          step(gridDim.x / splits) {}

    __device__ __forceinline__ u32 count() const { return token_tiles * row_tiles; }
    __device__ __forceinline__ bool exchange_halves() const {
      return kExchangesHalves && splits == 2;
    }
    // The stage behind the last of CTA `of` of a pair: it receives the other's sums.
    __device__ __forceinline__ u32 stage_for_sums(u32 of) const {
      return (groups * (of + 1) / 2 - groups * of / 2) % kStages;
    }
    // Shares of a tile, 16 tokens each, that CTA `of` of the cluster adds up: first_share(of) to
    // first_share(of + 1) - 1.
    __device__ __forceinline__ u32 first_share(u32 of) const {
      return (of * kShares + splits - 1) / splits;
    }
    __device__ __forceinline__ u32 owner(u32 share) const { return share * splits / kShares; }
    __device__ __forceinline__ Origin origin(u32 tile) const {
      const u32 raster_group = tile / (kRasterTokenTiles * row_tiles);
      const u32 first_token_tile = raster_group * kRasterTokenTiles;
      const u32 of_group = min(token_tiles - first_token_tile, kRasterTokenTiles);
      const u32 within = tile - first_token_tile * row_tiles;
      return {(first_token_tile + within % of_group) * kTokens, within / of_group * kRows};
    }
  };

  // What the producer loads of a group of K of a tile, into one stage.
  struct Loads {
    u32 to;
    u32 full;
    u32 group;
    u32 scale_bytes;

    __device__ __forceinline__ Loads(const Shared& shared, const PrefillProblem& problem, u32 slot,
                                     u32 group)
        : to(shared.ring + slot * kStageBytes),
          full(shared.full + 8 * slot),
          group(group),
          scale_bytes(scale_bytes_of(problem, group)) {}

    __device__ __forceinline__ void expect() const {
      mbarrier_arrive_expect(full, kScalesOffset + kScaleAtoms * scale_bytes);
    }
    __device__ __forceinline__ void tokens(const PrefillProblem& problem,
                                           const Origin& origin) const {
      tma_load<1>(to, problem.token_map, group * kGroupK, origin.token, full);
      tma_load<1>(to + kTokenBoxBytes, problem.token_map, group * kGroupK + 64, origin.token, full);
    }
    __device__ __forceinline__ void weights(const PrefillProblem& problem,
                                            const Origin& origin) const {
      tma_load<1>(to + kDataOffset, problem.weight_map, group * 64, origin.row, full);
#pragma unroll
      for (u32 i = 0; i < kScaleAtoms; ++i) {
        bulk_copy(to + kScalesOffset + i * kScaleBytes, scales_of(problem, origin, group, i),
                  scale_bytes, full);
      }
    }
  };

  static __device__ __forceinline__ u32 scale_bytes_of(const PrefillProblem& problem, u32 group) {
    return min(2u, scale_atoms(problem.columns) - 2 * group) * kAtomBytes;
  }

  // Scales of a group of K and of 128 of the tile's rows: i * 128 and on.
  static __device__ __forceinline__ const u8* scales_of(const PrefillProblem& problem,
                                                        const Origin& origin, u32 group, u32 i) {
    // Beyond the last row of atoms any scales will do: those results are not stored.
    const u32 atom = min(origin.row / kAtomRows + i, scale_atom_rows(problem.rows) - 1);
    return problem.row_scales +
           (static_cast<u64>(atom) * scale_atoms(problem.columns) + 2 * group) * kAtomBytes;
  }

  // One thread: loads the stages of every tile by TMA.
  static __device__ __forceinline__ void run_producer(const Shared& shared,
                                                      const PrefillProblem& problem,
                                                      const TileScheduler& tiles) {
    prefetch_tensormap(problem.token_map);
    prefetch_tensormap(problem.weight_map);
    if constexpr (kWaitsFirst) {
      prefetch_weights(problem, tiles);
      griddepcontrol_wait();
      griddepcontrol_launch_dependents();
    }
    auto pipe = PipelineState<kStages>::producer_start();
    for (u32 tile = tiles.first; tile < tiles.count(); tile += tiles.step) {
      const Origin origin = tiles.origin(tile);
      for (u32 group = tiles.begin; group < tiles.end; ++group, pipe.advance()) {
        const Loads loads(shared, problem, pipe.index, group);
        mbarrier_wait(shared.empty + 8 * pipe.index, pipe.phase);
        loads.expect();
        loads.weights(problem, origin);  // first: they come from memory
        loads.tokens(problem, origin);
      }
    }
    if (tiles.exchange_halves()) {
      mbarrier_wait(shared.empty + 8 * pipe.index, pipe.phase);
      cluster_wait_by_thread();
      mbarrier_arrive(address_in_rank(shared.ready, tiles.rank ^ 1));
    }
    if constexpr (kRole == Role::kHelped) {
      griddepcontrol_wait();
      griddepcontrol_launch_dependents();
      pipe.advance();
      mbarrier_wait(shared.empty + 8 * pipe.index, pipe.phase);
      constexpr u32 kBytes = kShares / 2 * (kShareBytes / kWarpgroups);
#pragma unroll
      for (u32 i = 0; i < kWarpgroups; ++i) {
        bulk_copy(shared.ring + pipe.index * kStageBytes + i * kBytes,
                  partials_of(problem, tiles.first, i) + tiles.rank * kBytes, kBytes,
                  shared.partials + 8 * i);
      }
    }
  }

  // The place of a warpgroup's sums of a tile among those of helpers.
  static __device__ __forceinline__ u8* partials_of(const PrefillProblem& problem, u32 tile,
                                                    u32 warpgroup) {
    return reinterpret_cast<u8*>(problem.partials) +
           (static_cast<u64>(tile) * kWarpgroups + warpgroup) * (kPartialBytes / kWarpgroups);
  }

  // Prefetches weights of the first tile, and their scales, into L2, while the preceding kernel
  // ends and may write them.
  static __device__ __forceinline__ void prefetch_weights(const PrefillProblem& problem,
                                                          const TileScheduler& tiles) {
    if (tiles.first >= tiles.count()) return;
    const Origin origin = tiles.origin(tiles.first);
    const u32 end = min(tiles.end, tiles.begin + kPrefetchedStages);
#pragma unroll 1
    for (u32 group = tiles.begin; group < end; ++group) {
      tma_prefetch(problem.weight_map, group * 64, origin.row);
#pragma unroll
      for (u32 i = 0; i < kScaleAtoms; ++i) {
        bulk_prefetch(scales_of(problem, origin, group, i), scale_bytes_of(problem, group));
      }
    }
  }

  // A consumer thread's place in the block's tile. Tile i of its warpgroup is tile first_tile + i
  // of the block. Of each 128 rows, even tiles take rows 8 * warp + g and 32 further, odd tiles 64
  // and 96 further, so that a lane's four scales are adjacent.
  struct Lane {
    u32 warpgroup;  // of the consumers
    u32 warp;       // in the warpgroup
    u32 lane;
    u32 t;  // lane % 4
    u32 first_tile;
    u32 row;     // the lane's first row in the block's tile
    u32 scales;  // in a stage: its block scales

    __device__ __forceinline__ Lane()
        : warpgroup(threadIdx.x / 128 - 1),
          warp(threadIdx.x / 32 % 4),
          lane(threadIdx.x & 31),
          t(lane & 3),
          first_tile(warpgroup * kTiles),
          row(first_tile / 2 * 128 + first_tile % 2 * 64 + warp * 8 + (lane >> 2)),
          scales(kScalesOffset + first_tile / 2 * kScaleBytes + t / 2 * kAtomBytes +
                 (warp * 8 + (lane >> 2)) * 16 + first_tile % 2 * 8) {}

    // The first of the 64 rows that tile i of the warpgroup stores.
    __device__ __forceinline__ u32 stored_row(const Origin& origin, u32 i) const {
      return origin.row + (first_tile + i) * 64;
    }
  };

  using Alpha = GemmAlpha<Operand>;
  using Sums = float[kTiles][kTokens / 2];
  using Turns = WarpgroupTurns<4>;

  // Two warpgroups: multiply tile after tile and store the results.
  static __device__ __forceinline__ void run_consumer(const Shared& shared,
                                                      const PrefillProblem& problem,
                                                      const TileScheduler& tiles) {
    const Lane lane;
    const Alpha alpha{kQuantizedTokens ? problem.a_global_scale[kDecode] * kTwoTo14 : 1.0f,
                      problem.b_global_scale[kDecode] * Operand::kWeightFactor};
    const Turns turns(lane.warpgroup);
    if constexpr (kTakesTurns) turns.begin();
    PipelineState<kStages> pipe;
    for (u32 tile = tiles.first; tile < tiles.count(); tile += tiles.step) {
      const Origin origin = tiles.origin(tile);
      Sums sum;
      run_mma(sum, pipe, shared, problem.columns, tiles, lane, turns);
      if constexpr (kRole == Role::kHelper) {
        store_partials(sum, problem, tile, lane.warpgroup);
        continue;
      }
      if constexpr (kExchangesHalves) {
        if (tiles.exchange_halves()) {  // a cluster has one tile
          if (tiles.rank == 0) {
            exchange_and_store<0>(sum, shared, problem, tiles, origin, lane, alpha);
          } else {
            exchange_and_store<1>(sum, shared, problem, tiles, origin, lane, alpha);
          }
          break;
        }
      }
      if constexpr (kRole == Role::kAny) {
        if (tiles.splits > 1) {  // likewise
          store_split_tile(sum, shared, problem, tiles, origin, lane, alpha);
          break;
        }
        store_tile(sum, shared, problem, origin, lane, alpha);
      }
    }
    if constexpr (kTakesTurns) turns.end();
  }

  // Multiplies the stages of one tile. A stage is released once its MMAs are complete, and so what its loads of
  // shared memory read has been used: without a fence, since the loads in flight are of the next stage.
  static __device__ __forceinline__ void run_mma(Sums& sum, PipelineState<kStages>& pipe,
                                                 const Shared& shared, u32 columns,
                                                 const TileScheduler& tiles, const Lane& lane,
                                                 const Turns& turns) {
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
      for (u32 j = 0; j < kTokens / 2; ++j) sum[i][j] = 0.0f;
    }
    Batch batches[kBatches];
    u32 last_stage = 0;
    for (u32 group = tiles.begin; group < tiles.end; ++group) {
      const u32 from = shared.ring + pipe.index * kStageBytes;
      mbarrier_wait(shared.full + 8 * pipe.index, pipe.phase);
      const LaneWeights<Operand, 2 * kTiles> weights(from + kDataOffset + lane.row * 64,
                                                     from + lane.scales, lane.t,
                                                     group * kGroupK + lane.t * kLaneK < columns);
      const u64 tokens = wgmma_descriptor(from);  // addresses are in units of 16 bytes
#pragma unroll
      for (u32 first = 0; first < 4; first += kBatchWords) {
        Batch& batch = batches[first / kBatchWords % kBatches];
        const bool releases = first == 0 && group != tiles.begin;  // the stage before
        if constexpr (kTakesTurns) {
          wgmma_wait<0>();  // the registers may be overwritten
          if (releases) mbarrier_arrive_cta(shared.empty + 8 * last_stage);
        }
        dequantize(batch, weights, first);
        if constexpr (kTakesTurns) turns.take();
        multiply(sum, batch, tokens, first);
        if constexpr (kTakesTurns) {
          turns.pass();
        } else {
          wgmma_wait<1>();  // the previous batch is complete, its registers may be overwritten
          if (releases) mbarrier_arrive_cta(shared.empty + 8 * last_stage);
        }
      }
      last_stage = pipe.index;
      pipe.advance();
    }
    wgmma_wait<0>();
    mbarrier_arrive_cta(shared.empty + 8 * last_stage);
  }

  // Dequantised weights of kBatchWords of a lane's words, two MMAs each.
  using Batch = u32[kTiles][2 * kBatchWords][4];

  static __device__ __forceinline__ void dequantize(Batch& batch,
                                                    const LaneWeights<Operand, 2 * kTiles>& weights,
                                                    u32 first) {
#pragma unroll
    for (u32 w = 0; w < kBatchWords; ++w) {
#pragma unroll
      for (u32 row = 0; row < 2 * kTiles; ++row) {
        u32 pairs[4];
        weights.dequantize(row, first + w, pairs);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) batch[row / 2][2 * w + j / 2][j % 2 * 2 + row % 2] = pairs[j];
      }
    }
  }

  // `tokens`: descriptor of the stage's.
  static __device__ __forceinline__ void multiply(Sums& sum, const Batch& batch, u64 tokens,
                                                  u32 first) {
    wgmma_fence();
#pragma unroll
    for (u32 mma = 0; mma < 2 * kBatchWords; ++mma) {
      const u32 w = first + mma / 2;
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
        Wgmma<kTokens, Operand>::run(
            sum[i], batch[i][mma],
            tokens + (w / 2 * kTokenBoxBytes + (w % 2 * 2 + mma % 2) * 32) / 16);
      }
    }
    wgmma_commit();
  }

  // Epilogue of a tile whose sums are complete: scales, adds the bias, rounds, and stores whole
  // rows.
  static __device__ __forceinline__ void store_tile(const Sums& sum, const Shared& shared,
                                                    const PrefillProblem& problem,
                                                    const Origin& origin, const Lane& lane,
                                                    const Alpha& alpha) {
    const RowBias bias(problem, origin, lane);
#pragma unroll
    for (u32 pass = 0; pass < kTokens / kOutTokens; ++pass) {
      float values[kTiles][kOutTokens / 2];
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
        for (u32 j = 0; j < kOutTokens / 2; ++j) values[i][j] = sum[i][pass * (kOutTokens / 2) + j];
      }
      store_tokens<kOutTokens>(values, pass * kOutTokens, shared, problem, origin, lane, alpha,
                               bias);
    }
  }

  // Of a lane's rows.
  struct RowBias {
    float of[kTiles][2];

    __device__ __forceinline__ RowBias(const PrefillProblem& problem, const Origin& origin,
                                       const Lane& lane) {
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
        for (u32 r = 0; r < 2; ++r) {
          const u32 row = origin.row + lane.row + (2 * i + r) * 32;
          of[i][r] = problem.bias != nullptr && row < problem.rows
                         ? low_bf16(__ldg(problem.bias + row))
                         : 0.0f;
        }
      }
    }
  };

  // Stores the results of kCount tokens of the tile, staged with each token's 64 * kTiles results
  // adjacent, in the output's order.
  template <u32 kCount>
  static __device__ __forceinline__ void store_tokens(const float (&sum)[kTiles][kCount / 2],
                                                      u32 first_token, const Shared& shared,
                                                      const PrefillProblem& problem,
                                                      const Origin& origin, const Lane& lane,
                                                      const Alpha& alpha, const RowBias& bias) {
    const u32 staging = shared.staging + lane.warpgroup * kOutBytes;
    const u32 matrix = lane.lane / 8;
    u32 packed[kTiles][kCount / 8][2];
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
      for (u32 j = 0; j < kCount / 8; ++j) {
#pragma unroll
        for (u32 r = 0; r < 2; ++r) {
          const float* const two = &sum[i][j * 4 + r * 2];
          packed[i][j][r] =
              pack_bf16x2(alpha(two[0]) + bias.of[i][r], alpha(two[1]) + bias.of[i][r]);
        }
      }
    }
    named_barrier_sync<128>(1 + lane.warpgroup);
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
      for (u32 j = 0; j < kCount / 8; j += 2) {
        // matrices: tokens j, rows +0 and +32; tokens j + 1, the same
        stmatrix_x4_trans(staging + ((j + matrix / 2) * 8 + lane.lane % 8) * kOutPitch +
                              ((2 * i + matrix % 2) * 32 + lane.warp * 8) * 2,
                          packed[i][j][0], packed[i][j][1], packed[i][j + 1][0],
                          packed[i][j + 1][1]);
      }
    }
    named_barrier_sync<128>(1 + lane.warpgroup);
    const u32 first_row = lane.stored_row(origin, 0);
#pragma unroll
    for (u32 i = threadIdx.x % 128; i < kCount * 8 * kTiles; i += 128) {
      const u32 token = origin.token + first_token + i / (8 * kTiles);
      const u32 row = first_row + i % (8 * kTiles) * 8;
      const uint4 eight =
          load_shared(staging + i / (8 * kTiles) * kOutPitch + i % (8 * kTiles) * 16);
      if (token < problem.tokens && row < problem.rows) {
        *reinterpret_cast<uint4*>(problem.output + static_cast<u64>(token) * problem.output_stride +
                                  row) = eight;
      }
    }
  }

  // Epilogue of a helper: writes a tile's sums as exchange_and_store reads them.
  static __device__ __forceinline__ void store_partials(const Sums& sum,
                                                        const PrefillProblem& problem, u32 tile,
                                                        u32 warpgroup) {
    float4* const to = reinterpret_cast<float4*>(partials_of(problem, tile, warpgroup)) +
                       threadIdx.x % 128;
#pragma unroll
    for (u32 share = 0; share < kShares; ++share) {
#pragma unroll
      for (u32 i = 0; i < 2 * kTiles; ++i) {
        const float* const four = &sum[i / 2][share * 8 + i % 2 * 4];
        to[(share * 2 * kTiles + i) * 128] = {four[0], four[1], four[2], four[3]};
      }
    }
  }

  // Sends CTA kTo of a pair the sums of its half of the tokens, once it has room for them.
  template <u32 kTo>
  static __device__ __forceinline__ void send_half(const Sums& sum, const Shared& shared,
                                                   const TileScheduler& tiles, const Lane& lane) {
    mbarrier_wait(shared.ready, 0);
    const u32 there = address_in_rank(shared.ring + tiles.stage_for_sums(kTo) * kStageBytes +
                                          (threadIdx.x - 128) * 16,
                                      kTo);
    const u32 barrier = address_in_rank(shared.partials + 8 * lane.warpgroup, kTo);
#pragma unroll
    for (u32 share = 0; share < kHalf; ++share) {
#pragma unroll
      for (u32 i = 0; i < 2 * kTiles; ++i) {
        const float* const four = &sum[i / 2][(kTo * kHalf + share) * 8 + i % 2 * 4];
        store_dsmem_async(there + share * kShareBytes + i * 16 * kConsumerThreads, barrier,
                          {four[0], four[1], four[2], four[3]});
      }
    }
  }

  // Stores the results of CTA kRank of a pair, which it packed from the sums in stage `stage`.
  template <u32 kRank>
  static __device__ __forceinline__ void store_half(const u32 (&packed)[kTiles][2 * kHalf][2],
                                                    u32 stage, const PrefillProblem& problem,
                                                    const Origin& origin, const Lane& lane) {
    // The results take the place of the sums that this warpgroup has read: of a share 16 tokens by
    // 64 rows for each tile, 16-byte units swizzled by token.
    constexpr u32 kTileBytes = 16 * kConsumerThreads;
    const u32 results = stage + lane.warpgroup * (kTileBytes / kWarpgroups);
    const u32 matrix = lane.lane / 8;
    named_barrier_sync<128>(1 + lane.warpgroup);
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
      for (u32 j = 0; j < 2 * kHalf; j += 2) {
        // matrices: as in store_tokens
        const u32 token = matrix / 2 * 8 + lane.lane % 8;
        const u32 unit = matrix % 2 * 4 + lane.warp;
        stmatrix_x4_trans(
            results + j / 2 * kShareBytes + i * kTileBytes + token * 128 + (unit ^ token % 8) * 16,
            packed[i][j][0], packed[i][j][1], packed[i][j + 1][0], packed[i][j + 1][1]);
      }
    }
    named_barrier_sync<128>(1 + lane.warpgroup);
    const u32 of_share = threadIdx.x % 128 / 8;
    const u32 unit = threadIdx.x % 8;
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
      for (u32 share = 0; share < kHalf; ++share) {
        const u32 token = origin.token + (kRank * kHalf + share) * 16 + of_share;
        const u32 row = lane.stored_row(origin, i) + unit * 8;
        const uint4 eight = load_shared(results + share * kShareBytes + i * kTileBytes +
                                        of_share * 128 + (unit ^ of_share % 8) * 16);
        if (token < problem.tokens && row < problem.rows) {
          *reinterpret_cast<uint4*>(problem.output +
                                    static_cast<u64>(token) * problem.output_stride + row) = eight;
        }
      }
    }
  }

  // Epilogue of a tile whose K a pair has split: sends the other CTA the sums of its half of the
  // tokens, adds its sums to those of this one's, the helper's last, and stores them. The order is
  // that of store_split_tile, since the sum of two does not depend on theirs.
  template <u32 kRank>
  static __device__ __forceinline__ void exchange_and_store(Sums& sum, const Shared& shared,
                                                            const PrefillProblem& problem,
                                                            const TileScheduler& tiles,
                                                            const Origin& origin, const Lane& lane,
                                                            const Alpha& alpha) {
    const u32 thread = (threadIdx.x - 128) * 16;
    send_half<kRank ^ 1>(sum, shared, tiles, lane);
    const RowBias bias(problem, origin, lane);
    const u32 stage = tiles.stage_for_sums(kRank);
    const u32 sums = shared.ring + stage * kStageBytes;
    const u32 helped = shared.ring + (stage + 1) % kStages * kStageBytes +
                       lane.warpgroup * (kHalf * (kShareBytes / kWarpgroups)) +
                       threadIdx.x % 128 * 16;
    mbarrier_wait(shared.partials + 8 * lane.warpgroup, 0);
    u32 packed[kTiles][2 * kHalf][2];  // of 8 tokens each
#pragma unroll
    for (u32 share = 0; share < kHalf; ++share) {
#pragma unroll
      for (u32 i = 0; i < 2 * kTiles; ++i) {
        float part[4];
        load_shared(sums + thread + share * kShareBytes + i * 16 * kConsumerThreads, part);
        const float* const mine = &sum[i / 2][(kRank * kHalf + share) * 8 + i % 2 * 4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) part[j] += mine[j];
        if constexpr (kRole == Role::kHelped) {
          float last[4];
          load_shared(helped + (share * 2 * kTiles + i) * 128 * 16, last);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) part[j] += last[j];
        }
#pragma unroll
        for (u32 r = 0; r < 2; ++r) {
          packed[i / 2][2 * share + i % 2][r] =
              pack_bf16x2(alpha(part[2 * r]) + bias.of[i / 2][r],
                          alpha(part[2 * r + 1]) + bias.of[i / 2][r]);
        }
      }
    }
    store_half<kRank>(packed, sums, problem, origin, lane);
  }

  // Epilogue of a tile whose K the CTAs of a cluster have split: each CTA sends the others its sums
  // of their shares, adds up its own share in the order of ranks, and stores it. A thread has the
  // same place in the tile in every CTA, so it reads what the threads of its number have sent.
  static __device__ __forceinline__ void store_split_tile(const Sums& sum, const Shared& shared,
                                                          const PrefillProblem& problem,
                                                          const TileScheduler& tiles,
                                                          const Origin& origin, const Lane& lane,
                                                          const Alpha& alpha) {
    cluster_arrive_relaxed();  // this thread's MMAs have read the ring
    const RowBias bias(problem, origin, lane);
    const u32 own_first = tiles.first_share(tiles.rank);
    const u32 thread = shared.ring + (threadIdx.x - 128) * 16;
    cluster_wait();
#pragma unroll
    for (u32 share = 0; share < kShares; ++share) {
      const u32 to = tiles.owner(share);
      if (to != tiles.rank) {
        const u32 first = tiles.first_share(to);
        const u32 shares = tiles.first_share(to + 1) - first;
        const u32 slot = (tiles.rank - (tiles.rank > to ? 1 : 0)) * shares + share - first;
        const u32 there = address_in_rank(thread + slot * kShareBytes, to);
        const u32 barrier = address_in_rank(shared.partials + 8 * lane.warpgroup, to);
#pragma unroll
        for (u32 i = 0; i < 2 * kTiles; ++i) {
          const float* four = &sum[i / 2][share * 8 + i % 2 * 4];
          store_dsmem_async(there + i * 16 * kConsumerThreads, barrier,
                            {four[0], four[1], four[2], four[3]});
        }
      }
    }
    const u32 own = tiles.first_share(tiles.rank + 1) - own_first;
    if (own == 0) return;
    mbarrier_wait(shared.partials + 8 * lane.warpgroup, 0);
#pragma unroll
    for (u32 share = 0; share < kShares; ++share) {
      if (tiles.owner(share) != tiles.rank) continue;
      float total[kTiles][8];
      for (u32 r = 0; r < tiles.splits; ++r) {
        const u32 from =
            thread + ((r - (r > tiles.rank ? 1 : 0)) * own + share - own_first) * kShareBytes;
#pragma unroll
        for (u32 i = 0; i < 2 * kTiles; ++i) {
          float* const four = &total[i / 2][i % 2 * 4];
          const float* const mine = &sum[i / 2][share * 8 + i % 2 * 4];
          float part[4] = {mine[0], mine[1], mine[2], mine[3]};
          if (r != tiles.rank) load_shared(from + i * 16 * kConsumerThreads, part);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) four[j] = r == 0 ? part[j] : four[j] + part[j];
        }
      }
      store_tokens<16>(total, share * 16, shared, problem, origin, lane, alpha, bias);
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
