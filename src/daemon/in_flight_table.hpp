// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <utility>

#include "daemon/in_flight_compile.hpp"

namespace cukiln::daemon {

/// The in-flight compiles of a daemon, in the order they were asked for: one for each user and
/// request; and which of them is next. Threads: the loop's only.
class InFlightTable {
 public:
  using Compiles = std::list<InFlightCompile>;
  using Place = Compiles::iterator;

  /// `one` has one element, whose user and digest the table does not have yet.
  Place add(Compiles one);
  /// Out of the table and of every account. What still waits is hung up on when the result goes.
  Compiles take(Place place) noexcept;
  /// Both: `end()` where there is none.
  Place find(std::uint64_t serial);
  Place find(std::uint32_t user, const RequestDigest& digest);

  void set_running(Place place) noexcept;
  void set_ended(Place place) noexcept;
  /// The first compile of the user with the fewest running; of `at_once` places, and up to twice as
  /// many for users who have none running: others' compiles may hang. Where no client's compile
  /// waits, the first that is ahead, one at a time. `end()`: none may begin.
  Place next(unsigned at_once);

  /// Adds a job for each.
  void describe(wire::DaemonSnapshot& snapshot) const;

  Place begin() noexcept { return compiles_.begin(); }
  Place end() noexcept { return compiles_.end(); }
  bool empty() const noexcept { return compiles_.empty(); }
  std::size_t size() const noexcept { return compiles_.size(); }
  /// Of texts.
  std::uint64_t held_bytes() const noexcept { return held_bytes_; }

 private:
  using Key = std::pair<std::uint32_t, RequestDigest>;  // of a user's
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<RequestDigest>()(key.second) ^ (std::size_t{key.first} << 32);
    }
  };
  Place next_in_turn(unsigned at_once);
  Place next_ahead();

  Compiles compiles_;
  std::unordered_map<Key, Place, KeyHash> by_request_;
  std::uint64_t last_serial_ = 0;
  std::uint64_t held_bytes_ = 0;
  unsigned running_ = 0;  // without the one that is ahead
  bool running_ahead_ = false;
};

}  // namespace cukiln::daemon
