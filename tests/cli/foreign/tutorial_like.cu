// SPDX-License-Identifier: Apache-2.0
// A program with main(): only its kernel is wanted. A launcher knows the kernel's types.
#include <cstdio>
#include <cstdlib>

#include <thrust/device_vector.h>
#include <thrust/host_vector.h>

#include <cute/tensor.hpp>
#include <cutlass/cluster_launch.hpp>

template <class Problem, class T, class Layout, class Threads>
__global__ static __launch_bounds__(decltype(size(Threads{}))::value) void scale_device(
    Problem problem, const T* from, T* to, Layout layout, Threads threads, T factor) {
  using namespace cute;
  Tensor source = local_partition(make_tensor(make_gmem_ptr(from), layout), threads, threadIdx.x);
  Tensor target = local_partition(make_tensor(make_gmem_ptr(to), layout), threads, threadIdx.x);
  axpby(factor, source, T(0), target);
}

template <class T>
void scale(int m, const T* from, T* to, T factor, cudaStream_t stream) {
  using namespace cute;
  auto problem = make_shape(m, Int<64>{});
  auto layout = make_layout(make_shape(Int<64>{}, Int<64>{}));
  auto threads = make_layout(make_shape(Int<16>{}, Int<8>{}));
  auto* kernel = &scale_device<decltype(problem), T, decltype(layout), decltype(threads)>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 0);
  cutlass::ClusterLaunchParams params{dim3(1), dim3(128), dim3(1), 0, stream};
  cutlass::launch_kernel_on_cluster(params, reinterpret_cast<const void*>(kernel), problem, from, to, layout, threads,
                                    factor);
  cudaDeviceSynchronize();
}

int main(int argc, char** argv) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) std::exit(1);
  thrust::host_vector<float> host(4096);
  thrust::device_vector<float> device = host;
  scale(64, device.data().get(), device.data().get(), 2.f, nullptr);
  std::printf("%d\n", argc);
  return 0;
}

template void scale(int, const float*, float*, float, cudaStream_t);
