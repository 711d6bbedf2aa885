// SPDX-License-Identifier: Apache-2.0
#include "cli/shipped.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::cli {

Result<Manifest> shipped_manifest() { return nvfp4::manifest(); }

}  // namespace cukiln::cli
