// The timing twin of the sm_100a GEMMs on sm_90a (tcgen05_timing.cuh), and what it is made of by itself:
// sm100_twin.py launches these kernels.
//
// The twin's block has a seventh warp, which takes part in the barriers of the whole block or cluster that
// gemm_sm100 has. In the first CTA of a pair, and where there is none, it stands in for the tensor core; in the
// second it forwards that CTA's loads to the first one's barriers. MMAs begin with their commit: of a tile in halves
// those of a first stage as a whole once the accumulator before has been read, which the tensor core need not wait for.
#define tma_load sm100_tma_load
#define tma_load_multicast sm100_tma_load_multicast
#include "machine.cuh"
#undef tma_load
#undef tma_load_multicast
#define CUKILN_TCGEN05 "tcgen05_timing.cuh"
#include "gemm_sm100_gate_up.cuh"
#include "gemm_sm100_roles.cuh"
#include "gemm_sm100_swapped.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kTensorCoreWarp = kSm100Threads / 32;

template <class Tile>
__device__ __forceinline__ void run_tensor_core(const Sm100Problem& problem, u32 rank, u32 mma_clocks) {
  u32 number = 0;
  u32 idle_from = static_cast<u32>(clock64());
  const StageRange stages = stages_of_cta<Tile>(problem);
  const auto clocks_of = [&](u32 s) { return min(kSteps, problem.scale_atoms() - s * kSteps) * mma_clocks; };
  for (TileScheduler<Tile> tiles(problem, rank); tiles.next();) {
    u32 s = stages.begin;
    if constexpr (Tile::kInHalves) {  // as run_mma_in_halves commits them
      const u32 end = stages.end - (tiles.tile < tiles.end ? 1 : min(Tile::kTogether, stages.end));
      for (; s < end; ++s) timing_complete(number++, clocks_of(s), idle_from);
      u32 first_halves = 0;
      for (u32 i = s; i < stages.end; ++i) first_halves += clocks_of(i) / 2;
      timing_complete(number++, first_halves, idle_from);
      for (; s < stages.end; ++s) timing_complete(number++, clocks_of(s) / 2, idle_from);
    }
    for (; s < stages.end; ++s) timing_complete(number++, clocks_of(s), idle_from);
    timing_complete(number++, 0, idle_from);
  }
}

template <class Tile>
__device__ __forceinline__ void forward_loads(typename Tile::Shared& shared, const Sm100Problem& problem,
                                              u32 rank) {
  PipelineState<Tile::kStages> pipe;
  for (TileScheduler<Tile> tiles(problem, rank); tiles.next();) {
    for (u32 s = 0; s < problem.stages(); ++s, pipe.advance()) {
      timing_forward(shared_address(&shared.full[pipe.index]), pipe.phase, sizeof(typename Tile::Stage),
                     rank - 1);
    }
  }
}

template <class Tile, class Problem = Sm100Problem>
__device__ __forceinline__ void twin(const Problem& problem, u32 mma_clocks) {
  if (threadIdx.x / 32 != kTensorCoreWarp) {
    if constexpr (Tile::kSwapped) gemm_sm100_swapped<Tile>(problem); else gemm_sm100<Tile>(problem);
    return;
  }
  const u32 rank = Tile::kCtas == 1 ? 0 : block_rank_in_cluster();
  if constexpr (Tile::kCtas != 1) meet_cluster();  // a release would take part of the time of the others
  timing_ready();
  if constexpr (Tile::kCtas != 1) meet_cluster();
  if (threadIdx.x % 32 == 0) {
    if (rank % Tile::kCtas == 0) {
      run_tensor_core<Tile>(problem, rank, mma_clocks);
    } else {
      forward_loads<Tile>(*reinterpret_cast<typename Tile::Shared*>(dynamic_shared_memory()), problem, rank);
    }
  }
  __syncwarp();
  if constexpr (Tile::kSwapped) {
    if (cluster_size() != 1) meet_cluster();
  } else {
    __syncthreads();
    if constexpr (Tile::kCtas != 1) meet_cluster();
  }
}

}  // namespace nvfp4
}  // namespace cukiln

#define TWIN(name, cluster, ...)                                                                 \
  extern "C" __global__ void cluster __launch_bounds__(cukiln::nvfp4::kSm100Threads + 32, 1)     \
      name(const __grid_constant__ cukiln::TensorMap rows,                                       \
           const __grid_constant__ cukiln::TensorMap columns,                                    \
           const __grid_constant__ cukiln::TensorMap row_scales,                                 \
           const __grid_constant__ cukiln::TensorMap column_scales,                              \
           const __grid_constant__ cukiln::TensorMap output, const float* a_scale,               \
           const float* b_scale, const cukiln::u16* bias, cukiln::u32 m, cukiln::u32 n,          \
           cukiln::u32 k, cukiln::u32 constant_b, cukiln::u32 mma_clocks) {                      \
    cukiln::nvfp4::twin<cukiln::nvfp4::Sm100Tile<__VA_ARGS__>>(                                  \
        {rows, columns, row_scales, column_scales, output, a_scale, b_scale, bias, m, n, k,      \
         nullptr, 0, constant_b, nullptr},                                                       \
        mma_clocks);                                                                             \
  }
#define TWIN_SWAPPED(name, ...)                                                                  \
  extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kSm100Threads + 32, 1)             \
      name(const __grid_constant__ cukiln::TensorMap rows,                                       \
           const __grid_constant__ cukiln::TensorMap columns,                                    \
           const __grid_constant__ cukiln::TensorMap row_scales,                                 \
           const __grid_constant__ cukiln::TensorMap column_scales, cukiln::u16* output,         \
           const float* a_scale, const float* b_scale, const cukiln::u16* bias, cukiln::u32 m,   \
           cukiln::u32 n, cukiln::u32 k, cukiln::u32 constant_b, cukiln::u32 mma_clocks) {       \
    cukiln::nvfp4::twin<cukiln::nvfp4::Sm100Tile<__VA_ARGS__>>(                                  \
        {rows, columns, row_scales, column_scales, rows, a_scale, b_scale, bias, m, n, k,        \
         nullptr, 0, constant_b, nullptr, output},                                               \
        mma_clocks);                                                                             \
  }
TWIN(twin_128x128, , 128, 1, false, false)
TWIN(twin_128x256, , 256, 1, false, false)
TWIN(twin_256x256, __cluster_dims__(2, 1, 1), 256, 2, false, false)
TWIN(twin_256x128, __cluster_dims__(2, 1, 1), 128, 2, false, false)
TWIN(twin_256x256_x2, __cluster_dims__(4, 1, 1), 256, 2, false, false, 2)
TWIN(twin_256x192_x2, __cluster_dims__(4, 1, 1), 192, 2, false, false, 2)
TWIN(twin_256x128_x2, __cluster_dims__(4, 1, 1), 128, 2, false, false, 2)
TWIN(twin_256x256_x4, __cluster_dims__(8, 1, 1), 256, 2, false, false, 2, 128, 2)
TWIN(twin_256x192_x4, __cluster_dims__(8, 1, 1), 192, 2, false, false, 2, 128, 2)
TWIN_SWAPPED(twin_swapped_16, 16, 1, true, false)
TWIN_SWAPPED(twin_swapped_32, 32, 1, true, false)
TWIN_SWAPPED(twin_swapped_64, 64, 1, true, false)
TWIN_SWAPPED(twin_swapped_128, 128, 1, true, false)
TWIN_SWAPPED(twin_swapped_256, 256, 1, true, false)
TWIN_SWAPPED(twin_swapped_64_half, 64, 1, true, false, 1, 64)

// moe_grouped_up, whose epilogue converts to E2M1 by arithmetic on sm_90a.
extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kSm100Threads + 32, 1)
    twin_grouped_up(const __grid_constant__ cukiln::TensorMap rows,
                    const __grid_constant__ cukiln::TensorMap columns,
                    const __grid_constant__ cukiln::TensorMap row_scales,
                    const __grid_constant__ cukiln::TensorMap column_scales, cukiln::u8* data,
                    cukiln::u8* scales, const float* scale, const int* experts, cukiln::u32 m,
                    cukiln::u32 width, cukiln::u32 k, cukiln::u32 mma_clocks) {
  using namespace cukiln::nvfp4;
  const FixedScaleProblem problem{{{rows, columns, row_scales, column_scales, rows, scale, nullptr, nullptr, m,
                                    2 * width, k, experts, kOneScale, 0, nullptr},
                                   data,
                                   scales,
                                   scale,
                                   width,
                                   kHalves,
                                   SwiGlu::of(__uint_as_float(0x7F800000), 1.0f, 0.0f)},
                                  scale};
  twin<GateUpTile>(problem, mma_clocks);
}

// The kernel before one of a chain of programmatic launches, as a quantiser is before a GEMM, that only takes
// time.
extern "C" __global__ void twin_before(cukiln::u64 nanoseconds) {
  cukiln::griddepcontrol_wait();
  cukiln::griddepcontrol_launch_dependents();
  cukiln::u64 begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  } while (now - begin < nanoseconds);
}

// What a launch costs by itself.
extern "C" __global__ void twin_empty() {}

// Clocks from the issue of one load of a 128 x 128-byte box to the return of the wait for it, for each of
// `count` boxes, one after the other.
extern "C" __global__ void twin_latency(const __grid_constant__ cukiln::TensorMap map,
                                        cukiln::u32* clocks, cukiln::u32 count) {
  using namespace cukiln;
  u8* const memory = dynamic_shared_memory();
  const u32 barrier = shared_address(memory + 128 * 128);
  if (threadIdx.x != 0) return;
  mbarrier_init(barrier, 1);
  mbarrier_init_fence();
  for (u32 i = 0; i < count; ++i) {
    mbarrier_arrive_expect(barrier, 128 * 128);
    const u32 begin = static_cast<u32>(clock64());
    tma_load<1>(shared_address(memory), &map, 0, i * 128, barrier);
    mbarrier_wait(barrier, i & 1);
    clocks[i] = static_cast<u32>(clock64()) - begin;
  }
}

// Clocks for `count` stages of the loads of a 128 x 128 tile, `with_scales` or without, by a ring of five
// whose stages are free as soon as they are loaded. Block b has row tile b % row_tiles.
extern "C" __global__ void __launch_bounds__(64, 1)
    twin_loads(const __grid_constant__ cukiln::TensorMap rows,
               const __grid_constant__ cukiln::TensorMap columns,
               const __grid_constant__ cukiln::TensorMap row_scales,
               const __grid_constant__ cukiln::TensorMap column_scales, cukiln::u32* clocks,
               cukiln::u32 row_tiles, cukiln::u32 count, cukiln::u32 stages_of_k, cukiln::u32 with_scales) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  using Tile = Sm100Tile<128, 1, false, false>;
  auto& shared = *reinterpret_cast<Tile::Shared*>(dynamic_shared_memory());
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < Tile::kStages; ++i) {
      mbarrier_init(shared_address(&shared.full[i]), 1);
      mbarrier_init(shared_address(&shared.empty[i]), 1);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const u32 row = blockIdx.x % row_tiles, column = blockIdx.x / row_tiles;
  const u32 begin = static_cast<u32>(clock64());
  PipelineState<Tile::kStages> pipe;
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (u32 i = 0, s = 0; i < count; ++i, pipe.advance(), s = s + 1 == stages_of_k ? 0 : s + 1) {
      auto& stage = shared.stage[pipe.index];
      const u32 full = shared_address(&shared.full[pipe.index]);
      mbarrier_wait(shared_address(&shared.empty[pipe.index]), pipe.phase ^ 1);
      mbarrier_arrive_expect(full, with_scales ? sizeof(stage) : sizeof(stage.rows) + sizeof(stage.columns));
      tma_load<1>(shared_address(stage.rows), &rows, s * kStageBytes, row * 128, full);
      tma_load<1>(shared_address(stage.columns), &columns, s * kStageBytes, column * 128, full);
      if (with_scales) {
        tma_load<1>(shared_address(stage.row_scales), &row_scales, 0, s * kSteps, row, full);
        tma_load<1>(shared_address(stage.column_scales), &column_scales, 0, s * kSteps, column, full);
      }
    }
  } else if (threadIdx.x == 32) {
#pragma unroll 1
    for (u32 i = 0; i < count; ++i, pipe.advance()) {
      mbarrier_wait(shared_address(&shared.full[pipe.index]), pipe.phase);
      mbarrier_arrive(shared_address(&shared.empty[pipe.index]));
    }
    clocks[blockIdx.x] = static_cast<u32>(clock64()) - begin;
  }
}

// Clocks for `count` boxes of 128 bytes by `rows`, with `depth` of them in flight. Each block has `own_rows` rows
// of its own, or the same ones as all others if that is 0, and takes box after box of the 128 there are.
extern "C" __global__ void __launch_bounds__(64, 1)
    twin_boxes(const __grid_constant__ cukiln::TensorMap map, cukiln::u32* clocks, cukiln::u32 rows,
               cukiln::u32 depth, cukiln::u32 count, cukiln::u32 own_rows, cukiln::u32 row_bytes) {
  using namespace cukiln;
  constexpr u32 kMostDepth = 32;
  __shared__ u64 full[kMostDepth], empty[kMostDepth];
  u8* const memory = dynamic_shared_memory();
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < depth; ++i) {
      mbarrier_init(shared_address(&full[i]), 1);
      mbarrier_init(shared_address(&empty[i]), 1);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const u32 begin = static_cast<u32>(clock64());
  const u32 across = row_bytes / 128;
  u32 slot = 0, phase = 0;
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (u32 i = 0; i < count; ++i) {
      const u32 barrier = shared_address(&full[slot]);
      mbarrier_wait(shared_address(&empty[slot]), phase ^ 1);
      mbarrier_arrive_expect(barrier, rows * 128);
      tma_load<1>(shared_address(memory + slot * rows * 128), &map, i % across * 128,
                  blockIdx.x * own_rows + i / across * rows % 128, barrier);
      if (++slot == depth) slot = 0, phase ^= 1;
    }
  } else if (threadIdx.x == 32) {
#pragma unroll 1
    for (u32 i = 0; i < count; ++i) {
      mbarrier_wait(shared_address(&full[slot]), phase);
      mbarrier_arrive(shared_address(&empty[slot]));
      if (++slot == depth) slot = 0, phase ^= 1;
    }
    clocks[blockIdx.x] = static_cast<u32>(clock64()) - begin;
  }
}

// Clocks of one SM in `nanoseconds`, so that times become clocks.
extern "C" __global__ void twin_clock(cukiln::u64* clocks, cukiln::u64 nanoseconds) {
  cukiln::u64 begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
  const cukiln::u64 from = static_cast<cukiln::u64>(clock64());
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  } while (now - begin < nanoseconds);
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    clocks[0] = static_cast<cukiln::u64>(clock64()) - from;
    clocks[1] = now - begin;
  }
}
