// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/flights.hpp"

namespace cukiln::daemon {

/// One compile, and who waits for it.
struct Flights::Flight {
  std::uint64_t serial = 0;
  std::shared_ptr<const wire::CompileOrder> order;
  std::string canonical;
  RequestDigest digest;
  std::uint64_t bytes = 0;
  std::chrono::milliseconds timeout{0};  ///< the most patient client's
  bool timed_out = false;
  bool again = false;
  bool ahead = false;  ///< begun because files changed; clients may have joined
  std::shared_ptr<const wire::SourceRoots>
      places;  ///< of the owner's files, or of those that changed
  std::vector<Asker> waiters;
  std::optional<Asker> owner;  ///< one of the waiters; nothing: it has gone
  std::uint32_t user = 0;      ///< everybody's who waits
  UserStores::Handle store;    ///< the user's
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point asked_at{};
  std::shared_ptr<CompileRun> run;
  std::thread thread;

  bool running() const noexcept { return run != nullptr; }
  bool is_owner(const Asker& asker) const noexcept {
    return owner && owner->connection == asker.connection && owner->id == asker.id;
  }
  /// To the next one that waits, who has other files, and may have gone when they change.
  void hand_over() {
    owner = waiters.front();
    places.reset();
    ahead = false;
  }
};

inline std::uint64_t bytes_of(const wire::CompileOrder& order) {
  std::uint64_t bytes = 0;
  for (const VirtualSource& source : order.request.sources) {
    bytes += source.text.size();
  }
  return bytes;
}

inline std::uint32_t ms_since(std::chrono::steady_clock::time_point then) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - then)
          .count());
}

}  // namespace cukiln::daemon
