// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "addons/nvrtc/library/real_library.hpp"

namespace cukiln::nvrtc_binding {

/// The NVRTC that the library of `caller`, an address in it, has in itself and exports, as one that
/// NVRTC is linked into statically. The dynamic linker binds its calls to this library all the
/// same. Null for any other caller. Threads: safe.
const Api* own_nvrtc_of(const void* caller);

/// True once a caller got that.
bool has_own_nvrtc() noexcept;

/// The library whose NVRTC the process would use if this library were not there, if it is one of
/// the above. Null if it is none, or if there is no NVRTC in the process.
const Api* own_nvrtc_of_process();

}  // namespace cukiln::nvrtc_binding
