// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <type_traits>

#include <cukiln/cukiln.h>
#include <cukiln/cukiln.hpp>

struct cukiln_loader {  // NOLINT(readability-identifier-naming): C's name
  cukiln::Store store;
  cukiln::KernelLoader loader;  // after the store, which must outlive it
};

struct cukiln_cancel_token {  // NOLINT(readability-identifier-naming): C's name
  cukiln::CancelToken token;
};

struct cukiln_watch {  // NOLINT(readability-identifier-naming): C's name
  cukiln::Watch watch;
};

namespace cukiln::c {

// A Kernel is one pointer; C sees that pointer.
static_assert(sizeof(Kernel) == sizeof(cukiln_kernel) && std::is_trivially_copyable_v<Kernel>);
inline cukiln_kernel to_c(Kernel kernel) noexcept {
  cukiln_kernel out;
  std::memcpy(static_cast<void*>(&out), &kernel, sizeof(Kernel));
  return out;
}
inline Kernel from_c(cukiln_kernel kernel) noexcept {
  Kernel out;
  std::memcpy(static_cast<void*>(&out), &kernel, sizeof(Kernel));
  return out;
}

}  // namespace cukiln::c
