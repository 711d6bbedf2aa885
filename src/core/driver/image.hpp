// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/base/bytes.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Checks that every table and section of a cubin lies inside `image`. The driver takes a pointer
/// without a size and would read past the end of a truncated image. Errors: corrupt.
Result<void> check_bounds(ByteView image);

/// Returns the capability that an image is for, 90 or 100. For messages; `image` must have passed
/// check_bounds.
int image_capability(ByteView image) noexcept;

/// Returns the release of the compiler that wrote an image, `13.0`; empty if the image does not
/// state it. For messages.
std::string image_compiler_release(ByteView image);

}  // namespace cukiln
