// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/compile/nvrtc_library.hpp"
#include "core/key/compile_request.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// True if this NVRTC carries CUDA's headers: 13.3 and later.
bool carries_headers(std::string_view nvrtc_version);

/// Returns the folder with the headers that an NVRTC carries, below `parent`, a folder of this
/// user's that is created if it is missing. What is there is used; else a child process of `worker`
/// installs them, so that NVRTC is not opened here. They are complete or not there at all, and the
/// same everywhere: NVRTC's marker with the time is left out, and `cuda_runtime.h`, which NVRTC
/// lacks, is one of cukiln's. Errors: io (a full disk, a folder that cannot be written, with what
/// to do); invalid_argument (the folder is another user's, or open to others); timeout; those of
/// spawn_detached.
Result<std::string> install_bundled_headers(const std::string& worker, const NvrtcInstall& install,
                                            const Toolchain& toolchain, const std::string& parent);

}  // namespace cukiln
