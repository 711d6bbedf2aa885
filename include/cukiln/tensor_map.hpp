// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/result.hpp>
#include <cukiln/tensor_box.hpp>

namespace cukiln {
inline namespace v0 {

/// A CUtensorMap: created by the driver, opaque, passed to a kernel by value.
struct alignas(128) TensorMap {  // 64 before CUDA 13
  std::uint64_t opaque[16];
};

/// Creates the map to pass to `kernel` as a `const __grid_constant__` parameter. It is a pure
/// computation of the driver: a call that succeeds takes no lock and allocates nothing, and it
/// works inside stream capture. Threads: may be called concurrently. Errors: invalid_argument (an
/// empty handle), driver, naming the tensor.
CUKILN_API Result<TensorMap> tensor_map(const Kernel& kernel, const TensorBox& tensor) noexcept;

}  // namespace v0
}  // namespace cukiln
