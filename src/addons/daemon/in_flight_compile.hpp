// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "addons/daemon/compile_run.hpp"
#include "addons/daemon/protocol/daemon_messages.hpp"
#include "addons/daemon/request_handle.hpp"

namespace cukiln::daemon {

/// One queued or running compile, and the requests that wait for it. The destructor closes the
/// sessions of waiters that have no reply, so that their clients compile locally and none waits
/// without end.
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
  CompileSubmission submission;  ///< of the first request, with the longest timeout of all
  std::uint64_t session = 0;     ///< of the first request, which counts for it
  bool running = false;
  std::unique_ptr<CompileRun> run;  ///< while it runs
  std::deque<RequestHandle> waiters;
  std::optional<RequestHandle> owner;  ///< the waiter that serves the files, until it leaves
  /// When it was queued or, if it runs, started.
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

  /// Milliseconds since it was queued or, if it runs, started.
  std::uint32_t ms_since_change() const {
    using std::chrono::milliseconds;
    return static_cast<std::uint32_t>(
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - since).count());
  }
  bool is_owner(const RequestHandle& request) const noexcept {
    return owner && owner->session == request.session && owner->id == request.id;
  }
  /// Removes a waiter, or all of its session (`id` 0). True if the owner was among them.
  bool drop(const RequestHandle& request) {
    const auto is_dropped = [&](const RequestHandle& one) {
      return one.session == request.session && (request.id == 0 || one.id == request.id);
    };
    std::erase_if(waiters, is_dropped);
    const bool owner_left = owner && is_dropped(*owner);
    if (owner_left) {
      owner.reset();
      if (!running && !waiters.empty()) {
        hand_over();
      }
    }
    return owner_left;
  }
  /// Makes the first waiter the owner.
  void hand_over() {
    assert(!waiters.empty());
    owner = waiters.front();
  }
};

}  // namespace cukiln::daemon
