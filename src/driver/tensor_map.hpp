// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/cuda_types.hpp"
#include "driver/tensor_box.hpp"

#include <cukiln/kernel.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// The map to pass to `kernel` by value. A pure computation of the driver: allocates nothing when
/// it succeeds, works inside a capture. Errors: invalid_argument (an empty handle), driver, with
/// the tensor that it did not take.
Result<TensorMap> tensor_map(const Kernel& kernel, const TensorBox& tensor) noexcept;

}  // namespace cukiln
