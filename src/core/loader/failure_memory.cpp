// SPDX-License-Identifier: Apache-2.0
#include "core/loader/failure_memory.hpp"

#include <algorithm>
#include <utility>

#include "core/base/fork_gate.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxFailures = 256;
constexpr Backoff::Limits kPauses{milliseconds(1'000), milliseconds(60'000)};

}  // namespace

std::optional<Error> FailureMemory::recall(const RequestDigest& request) {
  const ForkSafeLock lock(mutex_);
  const auto at = failures_.find(request);
  if (at == failures_.end() || SteadyClock::now() >= at->second.until) {
    return std::nullopt;
  }
  Error error = at->second.error;
  return std::move(error).with_context("it failed before and is not tried again yet");
}

void FailureMemory::remember(const RequestDigest& request, const Error& error) {
  if (error.code() != ErrorCode::internal && error.code() != ErrorCode::timeout) {
    return;
  }
  const ForkSafeLock lock(mutex_);
  if (failures_.size() >= kMaxFailures && !failures_.contains(request)) {
    failures_.erase(std::min_element(
        failures_.begin(), failures_.end(),
        [](const auto& a, const auto& b) { return a.second.until < b.second.until; }));
  }
  Failure& failure =
      failures_.try_emplace(request, Failure{error, {}, Backoff(kPauses)}).first->second;
  failure.error = error;
  failure.until = SteadyClock::now() + failure.backoff.next();
}

std::size_t FailureMemory::size() {
  const ForkSafeLock lock(mutex_);
  const auto now = SteadyClock::now();
  return static_cast<std::size_t>(
      std::count_if(failures_.begin(), failures_.end(),
                    [&](const auto& failure) { return now < failure.second.until; }));
}

void FailureMemory::forget(const RequestDigest& request) {
  const ForkSafeLock lock(mutex_);
  failures_.erase(request);
}

}  // namespace cukiln
