// The NVFP4 GEMMs on sm_100a with swapped operands, for few rows of A: B's rows are the MMA's rows, A's its
// columns.
//
// Roles and barriers are those of gemm_sm100_roles.cuh. What is fixed in a launch is most of their time, so
// set-up and end are others. The producer issues its first loads once the barriers of loads are there, before
// it makes the others; no thread waits for the whole thread block at the end; and D, of which a warp has 64
// bytes of each row of A, is stored from registers.
//
// Split: the CTAs of a cluster may share a tile, one tile for each cluster. Each multiplies a part of K and
// sends its sums to the CTAs that add them up, each a share of the columns, in the order of ranks.
//
//   received        all sums of this CTA's share are in its shared memory, where its stages were
#pragma once

#include "gemm_sm100_roles.cuh"

namespace cukiln {
namespace nvfp4 {

// The producer, of one thread but for the constructor. begin() needs the barriers `full` alone.
template <class Tile>
struct SwappedProducer {
  typename Tile::Shared& shared;
  const Sm100Problem& problem;
  TileScheduler<Tile> tiles;
  StageRange stages;
  PipelineState<Tile::kStages> smem_pipe;
  u32 early = 0;  // stages of which B is loaded, and A is not
  bool has_tile = false;

  __device__ __forceinline__ SwappedProducer(typename Tile::Shared& of, const Sm100Problem& of_problem)
      : shared(of), problem(of_problem), tiles(of_problem, 0), stages(stages_of_cta<Tile>(of_problem)) {}

  // Loads stage s, A or B or both. B comes first, and has the barrier expect both.
  __device__ __forceinline__ void load(u32 s, bool a, bool b) {
    auto& stage = shared.stage[smem_pipe.index];
    const u32 full = shared_address(&shared.full[smem_pipe.index]);
    if (b) {
      mbarrier_arrive_expect(full, sizeof(stage));
      load_rows<Tile>(stage, problem, tiles, s, full);
    }
    if (a) load_columns<Tile>(stage, problem, tiles, s, full);
  }

  // With constant_b loads B for the first tile's stages, as many as the ring has; then, once the preceding
  // kernel has completed, what is left of the first stage.
  __device__ __forceinline__ void begin() {
    has_tile = tiles.next();
    if (has_tile && problem.constant_b) {
#pragma unroll 1
      for (; early < min(Tile::kStages, stages.end - stages.begin); ++early, smem_pipe.advance()) {
        load(stages.begin + early, false, true);
      }
      smem_pipe = {};
    }
    griddepcontrol_wait();
    if (has_tile) {
      load(stages.begin, true, early == 0);
      smem_pipe.advance();
      if (early != 0) --early;
    }
  }

  __device__ __forceinline__ void run() {
    for (u32 s = stages.begin + 1; has_tile; s = stages.begin, has_tile = tiles.next()) {
#pragma unroll 1
      for (; s < stages.end; ++s, smem_pipe.advance()) {
        if (early != 0) {
          --early;
          load(s, true, false);
        } else {
          mbarrier_wait(shared_address(&shared.empty[smem_pipe.index]), smem_pipe.phase ^ 1);
          load(s, true, true);
        }
      }
    }
    drain_stages<Tile>(shared, smem_pipe);
  }
};

constexpr u32 kPairWords = 32;  // staged for a pair of columns: one for each lane

// Writes one lane (row) to a thread, of up to 32 accumulator columns, to [pair of columns][lane]. In every
// second pair the lanes are in another order, so that the loads of store_lanes are of different banks.
template <u32 kColumns>
__device__ __forceinline__ void stage_lanes(u8* staged, u32 lane, u32 half, const u32 (&sum)[32],
                                            float alpha, float bias) {
  u32* const to = reinterpret_cast<u32*>(staged) + half * kLoadColumns / 2 * kPairWords;
#pragma unroll
  for (u32 c = 0; c < kColumns; c += 2) {
    to[c / 2 * kPairWords + (lane ^ c / 2 % 2 * 4)] = scaled_bf16x2(sum[c], sum[c + 1], alpha, bias, bias);
  }
}

// Stores the first `columns` of kColumns staged columns of 32 lanes to D, from `row` and `column` on: a thread
// 16 bytes of both columns of each pair that it has. It loads all of them first: a load behind a store would
// wait for it.
template <u32 kColumns>
__device__ __forceinline__ void store_lanes(const u8* staged, u32 lane, const Sm100Problem& problem,
                                            u32 row, u32 column, u32 columns) {
  constexpr u32 kThreads = 4;             // for a pair of columns
  constexpr u32 kAtOnce = 32 / kThreads;  // pairs
  constexpr u32 kTimes = kColumns / 2 / kAtOnce;
  constexpr u32 kEven = 0x5410, kOdd = 0x7632;  // halves of two words
  const u32 pair = lane / kThreads;
  const u32* const from =
      reinterpret_cast<const u32*>(staged) + pair * kPairWords + lane % kThreads * 8;
  const u32 first = pair % 2 * 4;  // where the first four of eight lanes are
  uint4 even[kTimes], odd[kTimes];
#pragma unroll
  for (u32 i = 0; i < kTimes; ++i) {
    const u32* const of_pair = from + i * kAtOnce * kPairWords;
    const uint4 low = *reinterpret_cast<const uint4*>(of_pair + first);
    const uint4 high = *reinterpret_cast<const uint4*>(of_pair + (first ^ 4));
    even[i] = {__byte_perm(low.x, low.y, kEven), __byte_perm(low.z, low.w, kEven),
               __byte_perm(high.x, high.y, kEven), __byte_perm(high.z, high.w, kEven)};
    odd[i] = {__byte_perm(low.x, low.y, kOdd), __byte_perm(low.z, low.w, kOdd),
              __byte_perm(high.x, high.y, kOdd), __byte_perm(high.z, high.w, kOdd)};
  }
  const u32 to_row = row + lane % kThreads * 8;
  if (to_row >= problem.n) return;
#pragma unroll
  for (u32 i = 0; i < kTimes; ++i) {
    const u32 at = (i * kAtOnce + pair) * 2;
    u16* const to = problem.d + u64{column + at} * problem.n + to_row;
    if (at < columns) *reinterpret_cast<uint4*>(to) = even[i];
    if (at + 1 < columns) *reinterpret_cast<uint4*>(to + problem.n) = odd[i];
  }
}

template <class Tile>
__device__ __forceinline__ void run_swapped_epilogue(typename Tile::Shared& shared,
                                                     const Sm100Problem& problem, float alpha,
                                                     u32 tmem) {
  constexpr u32 kChunks = Tile::kColumns / Tile::kChunk;
  constexpr u32 kLoaded = Tile::kChunk < kLoadColumns ? Tile::kChunk : kLoadColumns;  // that count
  constexpr u32 kTmemEmptyAfter = Tile::kOverlap != 0 ? 1 : kChunks;
  const u32 lane = threadIdx.x % 32;
  const u32 quarter = threadIdx.x / 32 % 4;  // which 32 lanes of tensor memory this warp may read
  u8* const staged = shared.store[quarter][0];
  PipelineState<2> tmem_pipe;
  for (TileScheduler<Tile> tiles(problem, 0); tiles.next(); tmem_pipe.advance()) {
    const u32 row = tiles.row - tiles.row_in_mma() + quarter * 32;
    float bias = 0.0f;
    if (problem.bias != nullptr && row + lane < problem.n) bias = low_bf16(problem.bias[row + lane]);
    const u32 tmem_empty = shared_address(&shared.control.tmem_empty[tmem_pipe.index]);
    mbarrier_wait(shared_address(&shared.control.tmem_full[tmem_pipe.index]), tmem_pipe.phase);
    tcgen05_fence_after_sync();
    if (!tiles.has_row(quarter * 32)) {
      tcgen05_fence_before_sync();
      mbarrier_arrive(tmem_empty);
      continue;
    }
#pragma unroll 1
    for (u32 i = 0; i < kChunks; ++i) {
      const u32 chunk = (tmem_pipe.index == 0 ? kChunks - 1 - i : i) * Tile::kChunk;
      __syncwarp();  // the columns before have been read
#pragma unroll
      for (u32 half = 0; half < Tile::kChunk / kLoaded; ++half) {
        u32 sum[kLoadColumns];
        tmem_load(tmem + (quarter * 32 << 16) + tmem_pipe.index * Tile::kSecondAccumulator + chunk +
                      half * 32,
                  sum);
        stage_lanes<kLoaded>(staged, lane, half, sum, alpha, bias);
      }
      if (i + 1 == kTmemEmptyAfter) {
        tcgen05_fence_before_sync();
        mbarrier_arrive(tmem_empty);
      }
      __syncwarp();
      const u32 column = tiles.column + chunk;
      store_lanes<Tile::kChunk>(staged, lane, problem, row, column, problem.m - min(problem.m, column));
    }
  }
  tcgen05_fence_before_sync();
  named_barrier_arrive<kReadThreads>(kRead);
}

constexpr u32 kSentColumns = 4;  // of one row, that a thread sends at once

// The sums of a split tile that a CTA receives: [part of K][kSentColumns columns of its share][row].
template <class Tile>
__device__ __forceinline__ float4* received_sums(typename Tile::Shared& shared) {
  static_assert(sizeof(shared.stage) >=
                (Tile::kColumns / kSentColumns + kMaxSplits) * Tile::kRows * sizeof(float4));
  return reinterpret_cast<float4*>(shared.stage);
}

// Which columns of a split tile a CTA adds up, in units of kSentColumns.
template <class Tile>
struct Share {
  static constexpr u32 kOfTile = Tile::kColumns / kSentColumns;
  u32 size;   // at most
  u32 first;
  u32 count;  // those in which D has columns

  __device__ __forceinline__ Share(u32 rank, u32 splits, u32 tile_columns)
      : size(divide_by_ctas(kOfTile + splits - 1, splits)), first(rank * size) {
    const u32 of_d = (tile_columns + kSentColumns - 1) / kSentColumns;
    count = min(size, of_d - min(of_d, first));
  }
};

// Sends this CTA's sums, from tensor memory, to those that add them up. Its own share it stores.
template <class Tile>
__device__ __forceinline__ void send_sums(typename Tile::Shared& shared, u32 tmem, u32 tile_columns,
                                          u32 share, u32 row_in_mma) {
  constexpr u32 kLoaded = Tile::kColumns < kLoadColumns ? Tile::kColumns : kLoadColumns;
  const u32 lanes = threadIdx.x / 32 % 4 * 32;  // the first that this warp may read
  const u32 row = lanes + threadIdx.x % 32 - row_in_mma;
  const u32 rank = block_rank_in_cluster();
  float4* const own = received_sums<Tile>(shared) + rank * share * Tile::kRows + row;
  const u32 here = shared_address(own);
  const u32 received = shared_address(&shared.received);
  // Each CTA begins with other columns, so that not all send to the same one.
  u32 first = rank * kLoaded;
#pragma unroll 1
  for (u32 i = 0; i < Tile::kColumns / kLoaded; ++i, first += kLoaded) {
    first %= Tile::kColumns;
    if (first >= tile_columns) continue;
    u32 sum[kLoadColumns];
    tmem_load(tmem + (lanes << 16) + first, sum);
    u32 to = first / kSentColumns / share;        // the CTA
    u32 of_share = first / kSentColumns % share;  // that is sent next
#pragma unroll
    for (u32 c = 0; c < kLoaded; c += kSentColumns) {
      if (first + c >= tile_columns) break;
      const float4 four{__uint_as_float(sum[c]), __uint_as_float(sum[c + 1]),
                        __uint_as_float(sum[c + 2]), __uint_as_float(sum[c + 3])};
      if (to == rank) {
        own[of_share * Tile::kRows] = four;
      } else {
        store_dsmem_async(address_in_rank(here + of_share * Tile::kRows * sizeof(four), to),
                          address_in_rank(received, to), four);
      }
      if (++of_share == share) {
        of_share = 0;
        ++to;
      }
    }
  }
}

// Two rows that a thread adds up, of one unit of columns after the other. Each second four threads take the
// second row first, so that the loads are of different banks.
template <class Tile>
struct RowPair {
  u32 swap;  // 1: the second row first
  u32 row;   // of the tile, the first of the two
  bool is_in_d;
  float bias[2] = {};

  __device__ __forceinline__ RowPair(const Sm100Problem& problem, u32 tile_row, u32 quarter, u32 lane)
      : swap(lane / 4 % 2), row(quarter % (Tile::kRows / 32) * 32 + lane % 16 * 2),
        is_in_d(tile_row + row < problem.n) {
    if (problem.bias != nullptr && is_in_d) {
      bias[0] = low_bf16(problem.bias[tile_row + row + swap]);
      bias[1] = low_bf16(problem.bias[tile_row + row + (swap ^ 1)]);
    }
  }
};

// Adds up the received sums of this CTA's share, and stores them.
template <class Tile>
__device__ __forceinline__ void add_sums(typename Tile::Shared& shared, const Sm100Problem& problem,
                                         const TileScheduler<Tile>& tiles, const Share<Tile>& share,
                                         u32 parts, u32 tile_columns, const RowPair<Tile>& rows,
                                         float alpha, u32 quarter, u32 lane) {
  constexpr u32 kRowWarps = Tile::kRows / 32;
  constexpr u32 kUnitsOfWarp = 2;  // at the same time
  const u32 swap = rows.swap;
  for (u32 unit = quarter / kRowWarps * kUnitsOfWarp + lane / 16; unit < share.count;
       unit += 4 / kRowWarps * kUnitsOfWarp) {
    const float4* const from = received_sums<Tile>(shared) + unit * Tile::kRows + rows.row;
    float4 sum = from[swap];
    float4 other = from[swap ^ 1];
#pragma unroll 4
    for (u32 p = 1; p < parts; ++p) {
      const float4 more = from[p * share.size * Tile::kRows + swap];
      const float4 other_more = from[p * share.size * Tile::kRows + (swap ^ 1)];
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
      other = {other.x + other_more.x, other.y + other_more.y, other.z + other_more.z,
               other.w + other_more.w};
    }
    const u32 column = (share.first + unit) * kSentColumns;
    u16* const to = problem.d + u64{tiles.column + column} * problem.n + tiles.row + rows.row;
    const auto store = [&](u32 c, float value, float other_value) {
      const u32 pair = bf16x2_rn(fma_rn(value, alpha, rows.bias[0]),
                                 fma_rn(other_value, alpha, rows.bias[1]));
      if (column + c < tile_columns) {
        *reinterpret_cast<u32*>(to + c * problem.n) = swap ? pair << 16 | pair >> 16 : pair;
      }
    };
    store(0, sum.x, other.x);
    store(1, sum.y, other.y);
    store(2, sum.z, other.z);
    store(3, sum.w, other.w);
  }
}

// Sends this CTA's sums of a split tile, and adds up and stores its share of the columns.
template <class Tile>
__device__ __forceinline__ void run_split_epilogue(typename Tile::Shared& shared,
                                                   const Sm100Problem& problem, float alpha,
                                                   u32 tmem) {
  TileScheduler<Tile> tiles(problem, 0);
  tiles.locate();
  const u32 rank = block_rank_in_cluster();
  const u32 parts = min(tiles.splits, problem.stages());
  const u32 tile_columns = min(Tile::kColumns, problem.m - tiles.column);
  const Share<Tile> share(rank, tiles.splits, tile_columns);
  const u32 lane = threadIdx.x % 32;
  const u32 quarter = threadIdx.x / 32 % 4;
  const u32 received = shared_address(&shared.received);
  if (threadIdx.x == 64) {
    const u32 others = parts - (rank < parts ? 1 : 0);
    mbarrier_arrive_expect(received, others * share.count * Tile::kRows * sizeof(float4));
  }
  const RowPair<Tile> rows(problem, tiles.row, quarter, lane);  // reads the bias, which the wait hides
  if (rank < parts) {
    mbarrier_wait(shared_address(&shared.control.tmem_full[0]), 0);
    __syncwarp();
  }
  cluster_sync_relaxed();  // the MMAs of all are complete: sums may be sent to where their stages were
  tcgen05_fence_after_sync();
  if (rank < parts && tiles.has_row(quarter * 32)) {
    send_sums<Tile>(shared, tmem, tile_columns, share.size, tiles.row_in_mma());
  }
  tcgen05_fence_before_sync();
  named_barrier_arrive<kReadThreads>(kRead);

  mbarrier_arrive(received);
  mbarrier_wait(received, 0);
  if (!rows.is_in_d) return;
  add_sums<Tile>(shared, problem, tiles, share, parts, tile_columns, rows, alpha, quarter, lane);
}

template <class Tile>
__device__ __forceinline__ void gemm_sm100_swapped(const Sm100Problem& problem) {
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(dynamic_shared_memory());
  const u32 warp = threadIdx.x / 32;
  const bool is_split = cluster_size() != 1;

  if (warp == 0) {
    SwappedProducer<Tile> producer(shared, problem);
    if (elect_one_sync()) {
#pragma unroll  // a loop would have a fence for each iteration
      for (u32 i = 0; i < Tile::kStages; ++i) mbarrier_init(shared_address(&shared.full[i]), 1);
      mbarrier_init_fence();
      producer.begin();
#pragma unroll
      for (u32 i = 0; i < Tile::kStages; ++i) mbarrier_init(shared_address(&shared.empty[i]), 1);
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        mbarrier_init(shared_address(&shared.control.tmem_full[i]), 1);
        mbarrier_init(shared_address(&shared.control.tmem_empty[i]), kTileRows);
      }
      mbarrier_init(shared_address(&shared.received), 1 + kTileRows);
      mbarrier_init_fence();
    }
    __syncwarp();
    named_barrier_arrive<kSm100Threads>(kSetUp);
    if (elect_one_sync()) producer.run();
  } else {
    if (warp == 2 && elect_one_sync()) {
      prefetch_tensormap(&problem.rows);
      prefetch_tensormap(&problem.row_scales);
      prefetch_tensormap(&problem.columns);
      prefetch_tensormap(&problem.column_scales);
    }
    if (warp == 1) tmem_alloc<1>(shared_address(&shared.control.tmem));
    tcgen05_fence_before_sync();
    named_barrier_sync<kSm100Threads>(kSetUp);
    tcgen05_fence_after_sync();
    const u32 tmem = static_cast<u32>(shared.control.tmem);
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (warp == 1) {
      if (elect_one_sync()) run_mma<Tile>(shared, problem, 0, tmem);
    } else {
      const float alpha =
          fma_rn(problem.a_global_scale[kDecode], problem.b_global_scale[kDecode], 0.0f);
      if (is_split) {
        run_split_epilogue<Tile>(shared, problem, alpha, tmem);
      } else {
        run_swapped_epilogue<Tile>(shared, problem, alpha, tmem);
      }
      return;
    }
  }

  __syncwarp();
  if (is_split) cluster_sync_relaxed();
  if (warp == 1) {
    named_barrier_sync<kReadThreads>(kRead);
    tcgen05_fence_after_sync();
    tmem_dealloc<1>(static_cast<u32>(shared.control.tmem));
  }
}

}  // namespace nvfp4
}  // namespace cukiln
