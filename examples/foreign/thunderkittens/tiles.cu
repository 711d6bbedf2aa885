// SPDX-License-Identifier: Apache-2.0
// ThunderKittens is a library for kernels: this is a small one of ours, a product of tiles for each block.
#include <kittens.cuh>

using Matrix = kittens::gl<kittens::bf16, 1, 1, -1, -1>;

extern "C" __global__ void multiply(const __grid_constant__ Matrix a, const __grid_constant__ Matrix b,
                                    const __grid_constant__ Matrix c) {
  using namespace kittens;
  extern __shared__ alignment_dummy memory[];
  shared_allocator allocator(reinterpret_cast<int*>(&memory[0]));
  auto& a_shared = allocator.allocate<st_bf<32, 32>>();
  auto& b_shared = allocator.allocate<st_bf<32, 32>>();
  rt_bf<32, 32> a_tile;
  rt_bf<32, 32> b_tile;
  rt_bf<32, 32, ducks::rt_layout::col> b_columns;
  rt_fl<32, 32> sum;
  warp::zero(sum);
  for (int k = 0; k < a.cols() / 32; ++k) {
    warp::load(a_shared, a, {0, 0, static_cast<int>(blockIdx.y), k});
    warp::load(b_shared, b, {0, 0, k, static_cast<int>(blockIdx.x)});
    __syncwarp();
    warp::load(a_tile, a_shared);
    warp::load(b_tile, b_shared);
    warp::swap_layout(b_columns, b_tile);
    warp::mma_AB(sum, a_tile, b_columns, sum);
    __syncwarp();
  }
  warp::store(c, sum, {0, 0, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x)});
}
