// SPDX-License-Identifier: Apache-2.0
// One kernel for each of CUB's block-wide algorithms: CUB has no kernels of its own that run without its host part.
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_shuffle.cuh>
#include <cub/block/block_store.cuh>

constexpr int kThreads = 128;
constexpr int kItems = 4;

struct Less {
  template <typename T>
  __device__ bool operator()(const T& a, const T& b) const {
    return a < b;
  }
};
struct Subtract {
  template <typename T>
  __device__ T operator()(const T& a, const T& b) const {
    return a - b;
  }
};
struct Differs {
  template <typename T>
  __device__ bool operator()(const T& a, const T& b) const {
    return a != b;
  }
};

template <typename T, typename Work>
__device__ void on_tile(T* data, Work work) {
  using Load = cub::BlockLoad<T, kThreads, kItems, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<T, kThreads, kItems, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
  } shared;
  T items[kItems];
  T* tile = data + blockIdx.x * kThreads * kItems;
  Load(shared.load).Load(tile, items);
  __syncthreads();
  work(items);
  __syncthreads();
  Store(shared.store).Store(tile, items);
}

template <typename T>
__global__ void adjacent_difference(T* data) {
  using Block = cub::BlockAdjacentDifference<T, kThreads>;
  __shared__ typename Block::TempStorage shared;
  on_tile(data, [&](T(&items)[kItems]) { Block(shared).SubtractLeft(items, items, Subtract{}); });
}

template <typename T>
__global__ void discontinuity(T* data) {
  using Block = cub::BlockDiscontinuity<T, kThreads>;
  __shared__ typename Block::TempStorage shared;
  on_tile(data, [&](T(&items)[kItems]) {
    int heads[kItems];
    Block(shared).FlagHeads(heads, items, Differs{});
    for (int i = 0; i < kItems; ++i) items[i] = static_cast<T>(heads[i]);
  });
}

template <typename T>
__global__ void exchange(T* data) {
  using Block = cub::BlockExchange<T, kThreads, kItems>;
  __shared__ typename Block::TempStorage shared;
  on_tile(data, [&](T(&items)[kItems]) { Block(shared).BlockedToStriped(items, items); });
}

__global__ void histogram(const unsigned char* data, unsigned int* counts) {
  using Block = cub::BlockHistogram<unsigned char, kThreads, kItems, 256>;
  __shared__ typename Block::TempStorage shared;
  __shared__ unsigned int bins[256];
  unsigned char items[kItems];
  cub::LoadDirectStriped<kThreads>(threadIdx.x, data, items);
  Block(shared).Histogram(items, bins);
  __syncthreads();
  for (unsigned int i = threadIdx.x; i < 256; i += kThreads) atomicAdd(&counts[i], bins[i]);
}

template <typename T>
__global__ void merge_sort(T* data) {
  using Block = cub::BlockMergeSort<T, kThreads, kItems>;
  __shared__ typename Block::TempStorage shared;
  on_tile(data, [&](T(&items)[kItems]) { Block(shared).Sort(items, Less{}); });
}

template <typename T>
__global__ void radix_sort(T* data) {
  using Block = cub::BlockRadixSort<T, kThreads, kItems>;
  __shared__ typename Block::TempStorage shared;
  on_tile(data, [&](T(&items)[kItems]) { Block(shared).Sort(items); });
}

template <typename T>
__global__ void reduce(const T* data, T* sum) {
  using Block = cub::BlockReduce<T, kThreads>;
  __shared__ typename Block::TempStorage shared;
  T items[kItems];
  cub::LoadDirectStriped<kThreads>(threadIdx.x, data, items);
  const T all = Block(shared).Sum(items);
  if (threadIdx.x == 0) *sum = all;
}

__global__ void run_length_decode(const int* values, const unsigned int* lengths, int* decoded) {
  using Block = cub::BlockRunLengthDecode<int, kThreads, kItems, kItems>;
  __shared__ typename Block::TempStorage shared;
  int runs[kItems];
  unsigned int run_lengths[kItems];
  cub::LoadDirectBlocked(threadIdx.x, values, runs);
  cub::LoadDirectBlocked(threadIdx.x, lengths, run_lengths);
  unsigned int size = 0;
  Block block(shared, runs, run_lengths, size);
  for (unsigned int begin = 0; begin < size; begin += kThreads * kItems) {
    int window[kItems];
    block.RunLengthDecode(window, begin);
    cub::StoreDirectBlocked(threadIdx.x, decoded + begin, window, static_cast<int>(size - begin));
  }
}

template <typename T>
__global__ void scan(T* data) {
  using Block = cub::BlockScan<T, kThreads>;
  __shared__ typename Block::TempStorage shared;
  on_tile(data, [&](T(&items)[kItems]) { Block(shared).InclusiveSum(items, items); });
}

template <typename T>
__global__ void shuffle(T* data) {
  using Block = cub::BlockShuffle<T, kThreads>;
  __shared__ typename Block::TempStorage shared;
  on_tile(data, [&](T(&items)[kItems]) { Block(shared).Up(items, items); });
}
