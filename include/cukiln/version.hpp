// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cukiln/export.hpp>

#define CUKILN_VERSION_MAJOR 0
#define CUKILN_VERSION_MINOR 4
#define CUKILN_VERSION_PATCH 0

namespace cukiln {
inline namespace v0 {

/// Returns the version of the loaded library, `0.4.0`, which may differ from the header's.
CUKILN_API const char* version() noexcept;

}  // namespace v0
}  // namespace cukiln
