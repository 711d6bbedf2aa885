// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <cukiln/result.hpp>

/// `CUKILN_TRY(auto x, f());` initialises x with the value, or returns the error.
#define CUKILN_CONCAT_(a, b) a##b
#define CUKILN_CONCAT(a, b) CUKILN_CONCAT_(a, b)
#define CUKILN_TRY(declaration, expression) \
  CUKILN_TRY_(CUKILN_CONCAT(cukiln_result_, __LINE__), declaration, expression)
#define CUKILN_TRY_(temporary, declaration, expression) \
  auto temporary = (expression);                        \
  if (!temporary) return std::move(temporary).error();  \
  declaration = *std::move(temporary)
/// `CUKILN_CHECK(f());` returns the error of a Result<void>, if it has one.
#define CUKILN_CHECK(expression)                             \
  if (auto cukiln_checked = (expression); !cukiln_checked) { \
    return std::move(cukiln_checked).error();                \
  }

namespace cukiln {

/// An error with a formatted message.
template <class... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// An error of code internal; Error::out_of_memory() if memory is exhausted.
inline Error internal_error(const char* what) noexcept {
  try {
    return Error(ErrorCode::internal, what);
  } catch (const std::bad_alloc&) {
    return Error::out_of_memory();
  }
}

/// Runs `body` and turns exceptions of libraries (bad_alloc, fmt, …) into an Error, because the
/// public API throws none.
template <class Body>
auto guarded(Body&& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error::out_of_memory();
  } catch (const std::exception& caught) {
    return internal_error(caught.what());
  } catch (...) {
    return internal_error("an unknown exception");
  }
}

}  // namespace cukiln
