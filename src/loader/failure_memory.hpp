// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>

#include "base/backoff.hpp"
#include "base/mutex.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Requests whose compiler crashed or hung, so that a service that asks again and again does not
/// keep crashing compilers: each is left alone for a time that doubles. In memory only, and no
/// compile errors: those are cheap to repeat, and the file that was lacking may be there by now.
/// Threads: safe.
class FailureMemory {
 public:
  /// The error of a moment ago; nothing: try it.
  std::optional<Error> recall(const RequestDigest& request);
  void remember(const RequestDigest& request, const Error& error);
  void forget(const RequestDigest& request);
  /// How many are left alone now.
  std::size_t size();

 private:
  struct Failure {
    Error error;
    std::chrono::steady_clock::time_point until;
    Backoff backoff;
  };
  Mutex mutex_;
  std::map<RequestDigest, Failure> failures_;
};

}  // namespace cukiln
