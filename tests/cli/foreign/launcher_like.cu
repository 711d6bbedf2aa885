// SPDX-License-Identifier: Apache-2.0
// A header of an inference library: its launchers throw, ask for devices and keep thread-local state, in one file with
// the kernel.
#include <cublasLt.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <cub/cub.cuh>

namespace engine {

class Error : public std::exception {
 public:
  explicit Error(const std::string& message) : message_(message) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

inline std::pair<int, int> capability() {
  int device = 0;
  int major = 0;
  cudaGetDevice(&device);
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
    throw Error("no device");
  }
  return std::make_pair(major, 0);
}

inline int count_of_sms() {
  thread_local std::optional<int> known = std::nullopt;
  static std::atomic<int> count{0};
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  count.store(properties.multiProcessorCount, std::memory_order_relaxed);
  return known.value_or(count.load(std::memory_order_relaxed));
}

struct Divider {
  __host__ Divider(uint32_t divisor) : divisor_(divisor) {}
  __host__ __device__ uint32_t divide(uint32_t n) const { return n / divisor_; }

 private:
  uint32_t divisor_;
};

template <uint32_t kThreads, typename T>
__global__ void sample(const T* probabilities, int* chosen, const __grid_constant__ Divider rows, float threshold) {
  using Scan = cub::BlockScan<float, kThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage shared;
  const ushort low = static_cast<ushort>(threadIdx.x);
  float sum = 0.f;
  Scan(shared).InclusiveSum(std::fabs(static_cast<float>(probabilities[low])), sum);
  if (sum > threshold) atomicMin(&chosen[rows.divide(blockIdx.x)], static_cast<int>(threadIdx.x));
}

template <typename T>
cudaError_t launch(T* probabilities, int* chosen, cudaStream_t stream) {
  auto kernel = sample<256, T>;
  sample<256, T><<<count_of_sms(), 256, 0, stream>>>(probabilities, chosen, Divider(1), 0.5f);
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 0);
}

}  // namespace engine
