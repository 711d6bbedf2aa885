// SPDX-License-Identifier: Apache-2.0
// A command that was built without cukiln_nvfp4.
#include "cli/shipped.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

Result<Manifest> shipped_manifest() {
  return make_error(ErrorCode::invalid_argument,
                    "no manifest given, and this cukiln was built without kernels of its own; name "
                    "one, as in 'cukiln preload kernels.json', or build with -D CUKILN_NVFP4=ON");
}

}  // namespace cukiln::cli
