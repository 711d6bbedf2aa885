// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <cukiln/export.hpp>

namespace cukiln {

/// Why an operation failed. The numbers are part of the C ABI (`cukiln.h`) and never change.
enum class ErrorCode {
  invalid_argument = 1,  ///< the caller gave something that cannot work; nothing was changed
  not_found = 2,         ///< a file, kernel, entry or library is not there
  compile_failed = 3,  ///< NVRTC said no; `Error::log()` is its log with the user's own file names
  incompatible = 4,    ///< versions or architectures do not fit together
  corrupt = 5,         ///< stored bytes are not what was written
  io = 6,              ///< the operating system refused a read, a write or a lock
  timeout = 7,         ///< a limit in time or memory was reached, or the call was cancelled
  sealed = 8,          ///< a compile or a load was needed after `seal()`
  driver = 9,          ///< the CUDA driver is missing or returned an error
  internal = 10,       ///< a defect of cukiln or an exhausted process (out of memory)
};

/// The enumerator's own name, for logs and JSON.
CUKILN_API const char* name_of(ErrorCode code) noexcept;

template <class T>
class Result;

/// An error: a code for programs, a sentence for people (what was given, what was expected, what to
/// do next), and for compile errors the compiler's log. Cheap to move, one pointer wide.
/// Threads: immutable once made.
class CUKILN_API Error {
 public:
  Error(ErrorCode code, std::string message, std::string log = {})
      : detail_(new Detail{code, std::move(message), std::move(log)}) {}
  /// `internal`, "out of memory". Allocates nothing.
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

  /// The same error with "`context`: " before its message.
  Error with_context(std::string_view context) && {
    return Error(code(), std::string(context) + ": " + message(), std::move(detail_->log));
  }

 private:
  friend class Result<void>;
  Error() noexcept = default;  // the empty state, which only Result<void> uses
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

/// A value or an Error. Test it before use: `if (!r) return r.error();`.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  explicit operator bool() const noexcept { return state_.index() == 0; }
  bool has_value() const noexcept { return state_.index() == 0; }

  T& value() & noexcept { return *std::get_if<0>(&state_); }
  const T& value() const& noexcept { return *std::get_if<0>(&state_); }
  T&& value() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & noexcept { return value(); }
  const T& operator*() const& noexcept { return value(); }
  T&& operator*() && noexcept { return std::move(*this).value(); }
  T* operator->() noexcept { return &value(); }
  const T* operator->() const noexcept { return &value(); }

  Error& error() & noexcept { return *std::get_if<1>(&state_); }
  const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
  Error&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<T, Error> state_;
};

/// Success or an Error; success is one null pointer.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  Result() noexcept = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  explicit operator bool() const noexcept { return error_.detail_ == nullptr; }
  bool has_value() const noexcept { return error_.detail_ == nullptr; }
  Error& error() & noexcept { return error_; }
  const Error& error() const& noexcept { return error_; }
  Error&& error() && noexcept { return std::move(error_); }

 private:
  Error error_;  // empty on success
};

}  // namespace cukiln
