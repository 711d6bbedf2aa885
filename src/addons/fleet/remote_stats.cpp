// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/remote_stats.hpp"

namespace cukiln {

RemoteStats RemoteTelemetry::stats() const noexcept {
  RemoteStats stats;
  stats.hits = events[Event::hit];
  stats.misses = events[Event::miss];
  stats.stored = events[Event::stored];
  stats.dropped = events[Event::dropped];
  stats.waits = events[Event::wait];
  stats.skipped = events[Event::skipped];
  stats.received_bytes = events[Event::received_bytes];
  stats.sent_bytes = events[Event::sent_bytes];
  stats.requests = requests.values();
  stats.rejected = rejected.values();
  return stats;
}

}  // namespace cukiln
