// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include <cukiln/export.hpp>

namespace cukiln {
inline namespace v0 {

/// Why an operation failed. The numbers are part of the C ABI (`cukiln.h`) and never change.
enum class ErrorCode {
  invalid_argument = 1,  ///< the caller gave something that cannot work; nothing was changed
  not_found = 2,         ///< a file, kernel, entry or library is not there
  compile_failed = 3,    ///< NVRTC refused the source: `Error::log()` is its log, with real paths
  incompatible = 4,      ///< versions or architectures do not match
  corrupt = 5,           ///< stored bytes differ from those that were written
  io = 6,                ///< the operating system refused a read, a write or a lock
  timeout = 7,           ///< a limit in time or memory was reached, or the call was cancelled
  sealed = 8,            ///< a compile or a load was needed after `seal()`
  driver = 9,            ///< the CUDA driver is missing or returned an error
  internal = 10,         ///< a defect of cukiln or an exhausted process (out of memory)
};

/// Returns the enumerator's name, for logs and JSON.
CUKILN_API const char* name_of(ErrorCode code) noexcept;

template <class T>
class Result;

/// An error: a code for programs, a sentence for people (what was given, what was expected, what to
/// do), and for compile errors the compiler's log. One pointer wide, cheap to move.
/// Threads: immutable once constructed.
class CUKILN_API Error {
 public:
  Error(ErrorCode code, std::string message, std::string log = {})
      : detail_(new Detail{code, std::move(message), std::move(log)}) {}
  /// The error `internal`, "out of memory". Allocates nothing.
  CUKILN_API static Error out_of_memory() noexcept;
  Error(const Error& other) : detail_(copy_of(other.detail_.get())) {}
  Error(Error&&) noexcept = default;
  Error& operator=(const Error& other) {
    detail_.reset(copy_of(other.detail_.get()));
    return *this;
  }
  Error& operator=(Error&&) noexcept = default;
  ~Error() = default;

  ErrorCode code() const noexcept { return detail_->code; }
  const std::string& message() const noexcept { return detail_->message; }
  const std::string& log() const noexcept { return detail_->log; }

  /// Returns `code: message`, followed by the compiler's log on the next lines if there is one.
  CUKILN_API std::string to_string() const;

  /// Returns this error with "`context`: " before its message.
  Error with_context(std::string_view context) && {
    return Error(code(), std::string(context) + ": " + message(), std::move(detail_->log));
  }

 private:
  template <class T>
  friend class Result;
  // Misuse of a Result aborts with a message: an unchecked error must not be taken for a value.
  [[noreturn]] CUKILN_API static void end_without_value(const Error& error) noexcept;
  [[noreturn]] CUKILN_API static void end_without_error() noexcept;
  Error() noexcept = default;  // the empty state of Result<void>
  struct Detail {
    ErrorCode code;
    std::string message;
    std::string log;
  };
  struct Deleter {
    CUKILN_API void operator()(Detail* detail) const noexcept;
  };
  static Detail* copy_of(const Detail* detail) { return detail ? new Detail(*detail) : nullptr; }
  static Detail& no_memory() noexcept;
  std::unique_ptr<Detail, Deleter> detail_;
};

/// A value or an Error. Check it before use: `if (!r) return r.error();`. `value()` of an error and
/// `error()` of a value abort the process with a message. Threads: as a plain struct.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(const T& value) : state_(std::in_place_index<0>, value) {}          // NOLINT: implicit
  Result(T&& value) : state_(std::in_place_index<0>, std::move(value)) {}    // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  explicit operator bool() const noexcept { return state_.index() == 0; }
  bool has_value() const noexcept { return state_.index() == 0; }

  T& value() & noexcept { return *checked(this); }
  const T& value() const& noexcept { return *checked(this); }
  T&& value() && noexcept { return std::move(*checked(this)); }
  T& operator*() & noexcept { return value(); }
  const T& operator*() const& noexcept { return value(); }
  T&& operator*() && noexcept { return std::move(*this).value(); }
  T* operator->() noexcept { return &value(); }
  const T* operator->() const noexcept { return &value(); }

  /// Returns the value, or `fallback` if there is an error.
  template <class U>
  T value_or(U&& fallback) const& {
    return has_value() ? value() : static_cast<T>(std::forward<U>(fallback));
  }
  template <class U>
  T value_or(U&& fallback) && {
    return has_value() ? std::move(*this).value() : static_cast<T>(std::forward<U>(fallback));
  }

  /// Returns `next(value)`, a Result, or this error.
  template <class Next>
  auto and_then(Next&& next) && -> std::invoke_result_t<Next, T&&> {
    if (!has_value()) {
      return std::move(*this).error();
    }
    return std::forward<Next>(next)(std::move(*this).value());
  }
  template <class Next>
  auto and_then(Next&& next) const& -> std::invoke_result_t<Next, const T&> {
    if (!has_value()) {
      return error();
    }
    return std::forward<Next>(next)(value());
  }

  Error& error() & noexcept { return *checked_error(this); }
  const Error& error() const& noexcept { return *checked_error(this); }
  Error&& error() && noexcept { return std::move(*checked_error(this)); }

 private:
  template <class Self>
  static auto checked(Self* self) noexcept {
    auto* const value = std::get_if<0>(&self->state_);
    if (value == nullptr) {
      Error::end_without_value(*std::get_if<1>(&self->state_));
    }
    return value;
  }
  template <class Self>
  static auto checked_error(Self* self) noexcept {
    auto* const error = std::get_if<1>(&self->state_);
    if (error == nullptr) {
      Error::end_without_error();
    }
    return error;
  }

  std::variant<T, Error> state_;
};

/// Success, which is one null pointer, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  Result() noexcept = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  explicit operator bool() const noexcept { return error_.detail_ == nullptr; }
  bool has_value() const noexcept { return error_.detail_ == nullptr; }

  /// Returns `next()`, a Result, or this error.
  template <class Next>
  auto and_then(Next&& next) && -> std::invoke_result_t<Next> {
    if (!has_value()) {
      return std::move(error_);
    }
    return std::forward<Next>(next)();
  }

  Error& error() & noexcept { return checked_error(); }
  const Error& error() const& noexcept {
    return const_cast<Result*>(this)->checked_error();  // NOLINT: one check for both
  }
  Error&& error() && noexcept { return std::move(checked_error()); }

 private:
  Error& checked_error() noexcept {
    if (error_.detail_ == nullptr) {
      Error::end_without_error();
    }
    return error_;
  }
  Error error_;  // empty on success
};

}  // namespace v0
}  // namespace cukiln
