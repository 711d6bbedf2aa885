// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/result.hpp>
#include <cukiln/tensor_box.hpp>

namespace cukiln {
inline namespace v0 {

/// CUtensorMap: made by the driver, passed to a kernel by value, opaque in between.
struct alignas(128) TensorMap {  // 64 before CUDA 13
  std::uint64_t opaque[16];
};

/// The map to pass to `kernel` by value, as a `const __grid_constant__` parameter. A pure
/// computation of the driver: takes no lock, allocates nothing when it succeeds, works inside a
/// capture. Threads: any at once.
/// Errors: invalid_argument (an empty handle), driver, with the tensor that it did not take.
CUKILN_API Result<TensorMap> tensor_map(const Kernel& kernel, const TensorBox& tensor) noexcept;

}  // namespace v0
}  // namespace cukiln
