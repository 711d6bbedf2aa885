// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <cukiln/result.hpp>

/// `CUKILN_TRY(auto x, f());` gives x the value or returns the error.
#define CUKILN_CONCAT_(a, b) a##b
#define CUKILN_CONCAT(a, b) CUKILN_CONCAT_(a, b)
#define CUKILN_TRY(declaration, expression) \
  CUKILN_TRY_(CUKILN_CONCAT(cukiln_result_, __LINE__), declaration, expression)
#define CUKILN_TRY_(temporary, declaration, expression) \
  auto temporary = (expression);                        \
  if (!temporary) return std::move(temporary).error();  \
  declaration = *std::move(temporary)
/// The same for Result<void>.
#define CUKILN_CHECK(expression)                             \
  if (auto cukiln_checked = (expression); !cukiln_checked) { \
    return std::move(cukiln_checked).error();                \
  }

namespace cukiln {

/// An error with a formatted sentence.
template <class... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Where there is no memory for it, the Error says that.
inline Error internal_error(const char* what) noexcept {
  try {
    return Error(ErrorCode::internal, what);
  } catch (const std::bad_alloc&) {
    return Error::out_of_memory();
  }
}

/// Runs `body` and turns what libraries throw (bad_alloc, fmt, …) into an Error: nothing of ours
/// leaves the public API as an exception.
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
