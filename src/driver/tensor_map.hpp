// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/cuda_types.hpp"
#include "driver/tensor_box.hpp"

#include <cukiln/kernel.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Encodes the TMA descriptor to pass to `kernel` by value. A pure computation of the driver: it
/// does not allocate unless it fails, and works during a capture. Errors: invalid_argument (an
/// empty handle); driver, with the tensor that was rejected.
Result<TensorMap> tensor_map(const Kernel& kernel, const TensorBox& tensor) noexcept;

}  // namespace cukiln
