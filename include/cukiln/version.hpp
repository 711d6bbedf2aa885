// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cukiln/export.hpp>

#define CUKILN_VERSION_MAJOR 0
#define CUKILN_VERSION_MINOR 2
#define CUKILN_VERSION_PATCH 0

namespace cukiln {
inline namespace v0 {

/// `0.2.0`: of the library that is loaded, not of the header.
CUKILN_API const char* version() noexcept;

}  // namespace v0
}  // namespace cukiln
