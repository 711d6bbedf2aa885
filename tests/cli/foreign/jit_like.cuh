// SPDX-License-Identifier: Apache-2.0
// A kernel that is compiled when it is needed, with a launcher that takes tensors of another library.
#include <sgl_kernel/tensor.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <sstream>
#include <version>
#if defined(__cpp_lib_source_location)
#include <source_location>
#endif

static_assert(SGL_CUDA_ARCH >= 900);

namespace elementwise {

struct Failure : std::runtime_error {
  explicit Failure(std::string text) : runtime_error(text), text_(std::move(text)) {}
  auto cause() const -> std::string_view { return std::string_view{text_}; }

 private:
  std::string text_;
};

struct Error {
  std::ostringstream stream;
  [[noreturn]] ~Error() noexcept(false) { throw Failure(std::move(stream).str()); }
};

template <std::integral T, std::integral U>
__device__ constexpr auto div_ceil(T a, U b) {
  return (a + b - 1) / b;
}

template <int64_t kDim, bool kUsePDL, typename Float>
__global__ void scale(const Float* from, Float* to, uint32_t tokens) {
  for (uint32_t i = threadIdx.x; i < tokens * div_ceil(kDim, 2); i += blockDim.x) {
    to[i] = from[i] * Float(2);
  }
}

template <int64_t kDim, bool kUsePDL, typename Float>
struct Kernel {
  static constexpr auto kernel = scale<kDim, kUsePDL, Float>;

  static void run(const tvm::ffi::TensorView from, const tvm::ffi::TensorView to) {
    using namespace sglang::host;
    auto N = SymbolicSize{"tokens"};
    auto D = SymbolicSize{"dim"};
    auto device = SymbolicDevice{};
    D.set_value(kDim);
    device.set_options<kDLCUDA>();
    TensorMatcher({N, D}).with_strides({D, 1}).with_dtype<Float>().with_device(device).verify(from);
    auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.unwrap().device_type, 0));
    if (from.data_ptr() == nullptr) Error().stream << "no tensor of " << N.unwrap();
    kernel<<<1, 32, 0, stream>>>(static_cast<const Float*>(from.data_ptr()), static_cast<Float*>(to.data_ptr()),
                                 static_cast<uint32_t>(N.unwrap()));
  }
};

}  // namespace elementwise
