// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/compile/nvrtc_library.hpp"

namespace cukiln {

/// Finds the nvJitLink for an NVRTC: of its major version, in its folder, in the wheel of CUDA 12
/// beside its own, else in the first folder of the search for NVRTC, or a wheel beside it, that has
/// one. Errors: not_found, naming every folder searched.
Result<std::string> find_linker(const std::string& nvrtc_library, const NvrtcSearch& search);

}  // namespace cukiln
