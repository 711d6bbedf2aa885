// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "addons/fleet/endpoint.hpp"
#include "addons/fleet/envelope.hpp"
#include "core/base/telemetry.hpp"

namespace cukiln {

/// Upper bounds of a histogram of remote requests: a hit in the same network, the timeout of a
/// lookup, that of an upload.
inline constexpr std::array<std::uint32_t, 10> kRemoteTimesUs = {
    1'000, 2'000, 5'000, 10'000, 25'000, 50'000, 100'000, 200'000, 1'000'000, 10'000'000};
using RemoteTimes = Histogram<kRemoteTimesUs>;

/// Requests of one kind to one server.
struct RemoteTraffic {
  std::array<std::uint64_t, kRemoteStatuses> ended{};  ///< by RemoteStatus
  RemoteTimes::Snapshot times;
};

/// The counters of a remote store. Each number is right, but several are not a snapshot.
struct RemoteStats {
  std::uint64_t hits = 0, misses = 0;
  std::uint64_t stored = 0, dropped = 0;  ///< uploads that arrived, and that were dropped
  std::uint64_t queued = 0;               ///< uploads that wait or are in progress
  std::uint64_t waits = 0;                ///< requests that waited for another machine's compile
  std::uint64_t skipped = 0;              ///< requests not sent: the circuit breaker was open
  std::uint64_t received_bytes = 0, sent_bytes = 0;
  std::array<std::uint64_t, kRemoteStatuses> requests{};  ///< by RemoteStatus
  std::array<std::uint64_t, kRejections> rejected{};      ///< objects, by Rejection
};

/// What a remote store and its servers count. Threads: safe.
struct RemoteTelemetry {
  enum class Event { hit, miss, stored, dropped, wait, skipped, received_bytes, sent_bytes };
  static constexpr std::size_t kEvents = static_cast<std::size_t>(Event::sent_bytes) + 1;

  Counters<Event, kEvents> events;
  Counters<RemoteStatus, kRemoteStatuses> requests;
  Counters<Rejection, kRejections> rejected;

  /// `queued` stays 0.
  RemoteStats stats() const noexcept;
};

}  // namespace cukiln
