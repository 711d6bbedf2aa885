// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <utility>

#include <cukiln/cukiln.h>
#include <cukiln/result.hpp>

namespace cukiln::c {

/// Keeps an error for the calling thread and gives its code.
cukiln_code keep(Error error) noexcept;
/// The same where there may be no memory for a message. `message` must live for ever.
cukiln_code keep_fixed(cukiln_code code, const char* message) noexcept;

/// Runs `body`, which returns Result<void>; nothing leaves but a code.
template <class Body>
cukiln_code guarded(Body&& body) noexcept {
  try {
    Result<void> result = body();
    return result ? CUKILN_OK : keep(std::move(result).error());
  } catch (const std::bad_alloc&) {
    return keep_fixed(CUKILN_INTERNAL, "out of memory");
  } catch (const std::exception& caught) {
    try {
      return keep(Error(ErrorCode::internal, caught.what()));
    } catch (...) {
      return keep_fixed(CUKILN_INTERNAL, "out of memory");
    }
  } catch (...) {
    return keep_fixed(CUKILN_INTERNAL, "an unknown exception");
  }
}

}  // namespace cukiln::c
