// SPDX-License-Identifier: Apache-2.0
// One kernel for each of CUB's warp-wide algorithms.
#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_load.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cub/warp/warp_store.cuh>

constexpr int kWarps = 4;
constexpr int kItems = 4;

struct Less {
  template <typename T>
  __device__ bool operator()(const T& a, const T& b) const {
    return a < b;
  }
};

template <typename T, typename Work>
__device__ void on_tile(T* data, Work work) {
  using Load = cub::WarpLoad<T, kItems, cub::WARP_LOAD_TRANSPOSE>;
  using Store = cub::WarpStore<T, kItems, cub::WARP_STORE_TRANSPOSE>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
  } shared[kWarps];
  const unsigned int warp = threadIdx.x / 32;
  T items[kItems];
  T* tile = data + (blockIdx.x * kWarps + warp) * 32 * kItems;
  Load(shared[warp].load).Load(tile, items);
  __syncwarp();
  work(warp, items);
  __syncwarp();
  Store(shared[warp].store).Store(tile, items);
}

template <typename T>
__global__ void exchange(T* data) {
  using Warp = cub::WarpExchange<T, kItems>;
  __shared__ typename Warp::TempStorage shared[kWarps];
  on_tile(data, [&](unsigned int warp, T(&items)[kItems]) { Warp(shared[warp]).BlockedToStriped(items, items); });
}

template <typename T>
__global__ void merge_sort(T* data) {
  using Warp = cub::WarpMergeSort<T, kItems>;
  __shared__ typename Warp::TempStorage shared[kWarps];
  on_tile(data, [&](unsigned int warp, T(&items)[kItems]) { Warp(shared[warp]).Sort(items, Less{}); });
}

template <typename T>
__global__ void reduce(T* data) {
  using Warp = cub::WarpReduce<T>;
  __shared__ typename Warp::TempStorage shared[kWarps];
  on_tile(data, [&](unsigned int warp, T(&items)[kItems]) { items[0] = Warp(shared[warp]).Sum(items[0]); });
}

template <typename T>
__global__ void scan(T* data) {
  using Warp = cub::WarpScan<T>;
  __shared__ typename Warp::TempStorage shared[kWarps];
  on_tile(data, [&](unsigned int warp, T(&items)[kItems]) { Warp(shared[warp]).InclusiveSum(items[0], items[0]); });
}
