// SPDX-License-Identifier: Apache-2.0
// A column's kernel, whose instance and whose function are two headers that a host generates.
#include <cuda/std/tuple>
#include <cuda/std/type_traits>

namespace cudf {

struct column_device_view_core {
  const void* data;
};
struct mutable_column_device_view_core {
  void* data;
};

namespace jit {

template <int kIndex, typename Column, typename Element, bool kScalar, int kTable>
struct column_accessor {
  static constexpr int index = kIndex;
  using element_type = Element;
};

template <typename... T>
struct type_list {
  template <typename Function>
  static __device__ decltype(auto) map(Function&& function) {
    return function.template operator()<T...>();
  }
};

}  // namespace jit
}  // namespace cudf

#include <cudf/detail/kernel_instance.cuh>
#include <cudf/detail/operation_udf.cuh>

namespace cudf::jit {

template <bool kNullAware, bool kUserData, typename In, typename Out>
__device__ void transform_kernel(int rows, const column_device_view_core* in, mutable_column_device_view_core* out) {
  for (int row = threadIdx.x + blockIdx.x * blockDim.x; row < rows; row += blockDim.x * gridDim.x) {
    auto values = In::map([&]<typename... A>() {
      return cuda::std::tuple{static_cast<const typename A::element_type*>(in[A::index].data)[row]...};
    });
    Out::map([&]<typename A>() {
      typename A::element_type result{};
      cuda::std::apply([&](auto... value) { GENERIC_TRANSFORM_OP(&result, value...); }, values);
      static_cast<typename A::element_type*>(out[A::index].data)[row] = result;
    });
  }
}

}  // namespace cudf::jit

extern "C" __global__ void entry(int rows, const cudf::column_device_view_core* in,
                                 cudf::mutable_column_device_view_core* out) {
  CUDF_KERNEL_INSTANCE(rows, in, out);
}
