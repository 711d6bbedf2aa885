// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cukiln/manifest.hpp>

namespace cukiln::cli {

/// The kernels that come with cukiln. Errors: invalid_argument, in a build without them.
Result<Manifest> shipped_manifest();

}  // namespace cukiln::cli
