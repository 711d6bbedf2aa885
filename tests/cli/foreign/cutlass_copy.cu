// SPDX-License-Identifier: Apache-2.0
#include <cute/tensor.hpp>
#include <cutlass/numeric_types.h>

using namespace cute;

template <class Layout>
__device__ void copy_tile(const cutlass::half_t* from, cutlass::half_t* to, Layout layout) {
  Tensor source = make_tensor(make_gmem_ptr(from), layout);
  Tensor target = make_tensor(make_gmem_ptr(to), layout);
  auto threads = make_layout(make_shape(Int<32>{}, Int<4>{}));
  Tensor mine = local_partition(source, threads, threadIdx.x);
  Tensor out = local_partition(target, threads, threadIdx.x);
  copy(mine, out);
}

extern "C" __global__ void copy_kernel(const cutlass::half_t* from, cutlass::half_t* to) {
  copy_tile(from, to, make_layout(make_shape(Int<64>{}, Int<32>{})));
}
