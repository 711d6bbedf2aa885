// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "addons/nvrtc/library/real_library.hpp"

namespace cukiln::binding {

/// The peer that the library of `caller`, an address in it, has in itself and exports, as one that
/// it is linked into statically. The dynamic linker binds its calls to this library all the same.
/// Null for any other caller. Threads: safe.
const Api* own_library_of(const void* caller);

/// True once a caller got that.
bool has_own_library() noexcept;

/// The library whose peer the process would use if this library were not there, if it is one of the
/// above. Null if it is none, or if there is no peer in the process.
const Api* own_library_of_process();

}  // namespace cukiln::binding
