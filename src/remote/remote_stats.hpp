// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "base/mutex.hpp"
#include "remote/endpoint.hpp"
#include "remote/envelope.hpp"

namespace cukiln {

/// Requests of one kind to one server.
struct RemoteTraffic {
  /// In milliseconds: a hit on the same network, the deadline of a look-up, an upload's.
  static constexpr std::array<std::uint64_t, 10> kBoundsMs = {1,  2,   5,   10,    25,
                                                              50, 100, 200, 1'000, 10'000};
  std::array<std::uint64_t, kRemoteStatuses> ended{};    ///< by how
  std::array<std::uint64_t, kBoundsMs.size()> within{};  ///< each bound, the smaller ones too
  std::chrono::microseconds took{0};

  void add(RemoteStatus how, std::chrono::microseconds took) noexcept;
};

/// What a remote store did. Relaxed: each number is right, all together are no snapshot.
struct RemoteStats {
  std::uint64_t hits = 0, misses = 0;
  std::uint64_t stored = 0, dropped = 0;  ///< uploads that arrived, and that were given up
  std::uint64_t queued = 0;               ///< uploads that wait, or are under way
  std::uint64_t waits = 0;                ///< requests that waited for another machine's compile
  std::uint64_t skipped = 0;              ///< not asked: the server failed a moment ago
  std::uint64_t received_bytes = 0, sent_bytes = 0;
  std::array<std::uint64_t, kRemoteStatuses> requests{};  ///< by how they ended
  std::array<std::uint64_t, kRejections> rejected{};      ///< objects, by reason
};

/// The one RemoteStats of a remote store. Threads: safe.
class RemoteCounts {
 public:
  /// `body(RemoteStats&)`.
  template <class Body>
  void change(Body&& body) {
    const MutexLock lock(mutex_);
    body(stats_);
  }
  RemoteStats snapshot() const {
    const MutexLock lock(mutex_);
    return stats_;
  }

 private:
  mutable Mutex mutex_;
  RemoteStats stats_;
};

}  // namespace cukiln
