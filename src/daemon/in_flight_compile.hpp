// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/compile_submission.hpp"
#include "daemon/request_handle.hpp"
#include "wire/daemon_messages.hpp"

namespace cukiln::daemon {

/// One compile, queued or running, and the requests that wait for it. Those that have no answer
/// when it goes are hung up on: their clients compile themselves, and none waits for ever.
struct InFlightCompile {
  explicit InFlightCompile(ReplySink& replies) : sink(replies) {}
  ~InFlightCompile() {
    for (const RequestHandle& waiter : waiters) {
      sink.hang_up(waiter);
    }
  }
  InFlightCompile(const InFlightCompile&) = delete;
  InFlightCompile& operator=(const InFlightCompile&) = delete;

  ReplySink& sink;
  std::uint64_t serial = 0;
  CompileSubmission submission;  ///< the first request's; the timeout is the longest of all
  std::uint32_t user = 0;        ///< of all that wait
  bool running = false;
  bool ahead = false;  ///< begun because files changed; clients may have joined
  std::shared_ptr<const wire::SourceRoots>
      places;  ///< of the owner's files, or of those that changed
  std::vector<RequestHandle> waiters;
  std::optional<RequestHandle> owner;  ///< the waiter whose files are compiled; nothing: it left
  std::chrono::steady_clock::time_point since =
      std::chrono::steady_clock::now();  ///< queued; where it runs, started

  /// Since it was queued or, where it runs, started.
  std::uint32_t ms_since_change() const {
    using std::chrono::milliseconds;
    return static_cast<std::uint32_t>(
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - since).count());
  }
  bool is_owner(const RequestHandle& request) const noexcept {
    return owner && owner->session == request.session && owner->id == request.id;
  }
  /// Without this request, or all of its session's (`id` 0). True: the owner was among them.
  bool drop(const RequestHandle& request) {
    const auto is_meant = [&](const RequestHandle& one) {
      return one.session == request.session && (request.id == 0 || one.id == request.id);
    };
    std::erase_if(waiters, is_meant);
    const bool owner_left = owner && is_meant(*owner);
    if (owner_left) {
      owner.reset();
      if (!running && !waiters.empty()) {
        hand_over();
      }
    }
    return owner_left;
  }
  /// To the next that waits, which has other files, and may have left when they change.
  void hand_over() {
    owner = waiters.front();
    places.reset();
    ahead = false;
  }
};

}  // namespace cukiln::daemon
