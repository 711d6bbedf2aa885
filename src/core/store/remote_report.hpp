// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cukiln {

/// The remote stores of a process, with counters since they were opened. Addresses have no
/// passwords.
struct RemoteReport {
  struct Server {
    std::string where;          ///< `redis://cache:6379`
    std::string backend;        ///< `http` or `redis`: the label in metrics
    bool circuit_open = false;  ///< no requests are sent for now, because of failures
  };
  /// Requests of one kind to servers of one kind.
  struct Traffic {
    std::string backend, op;
    std::vector<std::pair<std::string, std::uint64_t>> results;  ///< by result
    std::vector<std::pair<double, std::uint64_t>> buckets;  ///< upper bound in seconds, cumulative
    double seconds = 0;                                     ///< in sum
  };
  /// Objects that a server did not take, or, without a server, that were sent to none.
  struct NotUploaded {
    std::string server;
    std::string reason;  ///< `denied`, or another result; the suffix of a counter
    std::string detail;
    std::string advice;
    std::uint64_t objects = 0;
    bool is_loss = true;  ///< false: they are of no use elsewhere, and not among `dropped`
  };
  std::vector<Server> servers;  ///< empty: no remote store is configured
  std::vector<Traffic> traffic;
  std::uint64_t hits = 0, misses = 0, waits = 0, skipped = 0;
  /// Uploads: that every server has acknowledged, that are lost, that wait or are in progress.
  std::uint64_t stored = 0, dropped = 0, queued = 0;
  std::vector<NotUploaded> not_uploaded;
  std::uint64_t received_bytes = 0, sent_bytes = 0;
  std::vector<std::pair<std::string, std::uint64_t>> requests;  ///< by result
  std::vector<std::pair<std::string, std::uint64_t>> rejected;  ///< objects, by reason
  /// Transitions of circuit breakers, by the new state.
  std::vector<std::pair<std::string, std::uint64_t>> breaker_transitions;
};
/// How the servers answer now, for `doctor`.
struct RemoteProbe {
  struct Server {
    std::string where;
    bool works = false;  ///< answers, and has taken an upload if this machine has a key
    double ms = 0;       ///< until the answer
    std::string detail;  ///< of one that does not: what went wrong
    std::string advice;  ///< what to do then
  };
  /// A trusted key whose trust ends.
  struct Expiry {
    std::string key;
    std::int64_t at_s = 0;  ///< since 1970
    bool has_passed = false;
  };
  std::vector<Server> servers;
  bool writes = false;  ///< this machine has a key to sign with
  std::size_t trusted_keys = 0;
  std::vector<Expiry> expiries;
};

}  // namespace cukiln
