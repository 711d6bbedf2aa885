// SPDX-License-Identifier: Apache-2.0
// A backend of a tensor library: handles, graphs and launchers of a host in one file with the kernels.
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

struct block_q4 {
  __extension__ union {
    struct {
      half d;
      half m;
    } scales;
    half2 dm;
  };
  uint8_t data[16];
};
static_assert(sizeof(block_q4) == 20);

struct graph {
  int nodes = 0;
};

struct context {
  cublasHandle_t handle = nullptr;
  std::unordered_map<const void*, std::unique_ptr<graph>> graphs;

  cublasHandle_t cublas() {
    if (handle == nullptr && cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS) {
      cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH);
    }
    return handle;
  }
  graph* find(const void* key) {
    auto it = graphs.find(key);
    if (it == graphs.end()) {
      it = graphs.emplace(key, std::make_unique<graph>()).first;
    }
    return it->second.get();
  }
};

static bool can_overlap(const void* kernel) {
  struct cache_key {
    int device;
    const void* kernel;
    bool operator==(const cache_key& other) const { return device == other.device && kernel == other.kernel; }
  };
  struct cache_key_hash {
    size_t operator()(const cache_key& key) const { return key.device; }
  };
  static std::mutex mutex;
  static std::unordered_map<cache_key, bool, cache_key_hash> cache;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto it = cache.find({0, kernel});
  return it != cache.end() && it->second;
}

template <int block_size>
static __global__ void dequantize(const block_q4* x, float* y) {
  const block_q4& block = x[blockIdx.x];
  y[blockIdx.x * block_size + threadIdx.x] = __half2float(__low2half(block.dm)) * (block.data[threadIdx.x % 16] & 15);
}

void launch(context& ctx, const block_q4* x, float* y, cudaStream_t stream) {
  if (ctx.cublas() != nullptr && can_overlap(reinterpret_cast<const void*>(dequantize<32>))) {
    dequantize<32><<<1, 32, 0, stream>>>(x, y);
  }
}
