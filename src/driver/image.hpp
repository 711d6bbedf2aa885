// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/bytes.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Whether every table and section of a cubin lies inside `image`. The driver is given a pointer
/// without a size, and reads past the end of what was cut off. Errors: corrupt.
Result<void> check_bounds(ByteView image);

/// What a cubin that passed `check_bounds` says of itself, for messages.
int image_capability(ByteView image) noexcept;       ///< 90, 100
std::string image_compiler_release(ByteView image);  ///< `13.0`; empty: it does not say

}  // namespace cukiln
