// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <utility>

#include <cukiln/cukiln.h>
#include <cukiln/extension.hpp>
#include <cukiln/result.hpp>

namespace cukiln::c {

using extension::keep_error;

/// Runs `body`, which returns Result<void>; nothing leaves but a code.
template <class Body>
cukiln_code to_code(Body&& body) noexcept {
  try {
    Result<void> result = body();
    return result ? CUKILN_OK : keep_error(std::move(result).error());
  } catch (const std::bad_alloc&) {
    return keep_error(ErrorCode::internal, "out of memory");
  } catch (const std::exception& caught) {
    try {
      return keep_error(Error(ErrorCode::internal, caught.what()));
    } catch (...) {
      return keep_error(ErrorCode::internal, "out of memory");
    }
  } catch (...) {
    return keep_error(ErrorCode::internal, "an unknown exception");
  }
}

}  // namespace cukiln::c
