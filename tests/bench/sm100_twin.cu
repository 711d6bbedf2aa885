// The timing twin of the sm_100a GEMMs on sm_90a (tcgen05_timing.cuh), and what it is made of by itself:
// sm100_twin.py launches these kernels.
//
// The twin's block has a seventh warp, which stands in for the tensor core and takes part in the two
// barriers of the whole block that gemm_sm100 has.
#define CUKILN_TCGEN05 "tcgen05_timing.cuh"
#include "gemm_sm100_roles.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kTensorCoreWarp = kSm100Threads / 32;

template <class Tile>
__device__ __forceinline__ void twin(const Sm100Problem& problem, u32 mma_clocks) {
  if (threadIdx.x / 32 != kTensorCoreWarp) {
    gemm_sm100<Tile>(problem);
    return;
  }
  if (threadIdx.x % 32 == 0) timing_init();
  __syncwarp();
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    u32 number = 0;
    u32 idle_from = static_cast<u32>(clock64());
    for (TileScheduler<Tile> tiles(problem, 0); tiles.next();) {
      for (u32 s = 0; s < problem.stages(); ++s) {
        const u32 steps = min(kSteps, problem.scale_atoms() - s * kSteps);
        timing_complete(number++, steps * mma_clocks, idle_from);
      }
      timing_complete(number++, 0, idle_from);
    }
  }
  __syncwarp();
  __syncthreads();
}

}  // namespace nvfp4
}  // namespace cukiln

#define TWIN(name, ...)                                                                          \
  extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kSm100Threads + 32, 1)             \
      name(const __grid_constant__ cukiln::TensorMap rows,                                       \
           const __grid_constant__ cukiln::TensorMap columns,                                    \
           const __grid_constant__ cukiln::TensorMap row_scales,                                 \
           const __grid_constant__ cukiln::TensorMap column_scales,                              \
           const __grid_constant__ cukiln::TensorMap output, const float* a_scale,               \
           const float* b_scale, const cukiln::u16* bias, cukiln::u32 m, cukiln::u32 n,          \
           cukiln::u32 k, cukiln::u32 mma_clocks) {                                              \
    cukiln::nvfp4::twin<cukiln::nvfp4::Sm100Tile<__VA_ARGS__, false>>(                           \
        {rows, columns, row_scales, column_scales, output, a_scale, b_scale, bias, m, n, k, nullptr, 0}, \
        mma_clocks);                                                                             \
  }
TWIN(twin_128x128, 128, 1, false)
TWIN(twin_128x256, 256, 1, false)
TWIN(twin_swapped, 64, 1, true)

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
