// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>

#include "core/base/backoff.hpp"
#include "core/base/mutex.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Remembers requests whose compiler crashed or hung, so that a service that repeats one does not
/// crash a compiler each time: the request fails immediately during a pause that doubles. Kept in
/// memory only, up to 256 requests: then the one whose pause ends first is forgotten. Compile
/// errors are not remembered: they are cheap to repeat, and a missing file may exist by then.
/// Threads: safe.
class FailureMemory {
 public:
  /// Returns the remembered error; nothing if the request may be tried.
  std::optional<Error> recall(const RequestDigest& request);
  /// Ignores errors that are neither internal nor timeout.
  void remember(const RequestDigest& request, const Error& error);
  void forget(const RequestDigest& request);
  /// The number of requests that are paused now.
  std::size_t size();

 private:
  struct Failure {
    Error error;
    std::chrono::steady_clock::time_point until;
    Backoff backoff;
  };
  Mutex mutex_;
  std::map<RequestDigest, Failure> failures_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln
