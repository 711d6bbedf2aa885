// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "addons/daemon/in_flight_compile.hpp"

namespace cukiln::daemon {

/// The in-flight compiles of a daemon in the order of their requests, one for each request. Selects
/// the next one to run. Threads: the loop's only.
class InFlightTable {
 public:
  using Compiles = std::list<InFlightCompile>;
  using Iterator = Compiles::iterator;

  /// Adds the one element of `one`, whose digest the table must not have yet, and whose waiters are
  /// of its session.
  Iterator add(Compiles one);
  /// Removes a compile from the table. Its remaining waiters are closed with the returned list.
  Compiles take(Iterator it) noexcept;
  /// Returns `end()` if there is none, as the next one does.
  Iterator find(std::uint64_t serial);
  Iterator find(const RequestDigest& digest);

  void set_running(Iterator it) noexcept;
  void set_ended(Iterator it) noexcept;
  /// Selects the next compile to run: the first of the session with the fewest running compiles, up
  /// to `max_running` in total, one of which one session leaves to the others, because its compiles
  /// may hang. Returns `end()` if none may start.
  Iterator next(unsigned max_running);

  void add_waiter(Iterator it, const RequestHandle& waiter);
  /// Removes a waiter, or all of its session (`id` 0). True if the owner was among them.
  bool drop_waiter(Iterator it, const RequestHandle& request);

  /// Adds jobs to `snapshot`, running ones first, and the numbers of all compiles and waiters.
  void describe(wire::DaemonSnapshot& snapshot) const;
  /// Further jobs, and the rest of a label, are left out: clients decide how many there are, and
  /// the loop makes the snapshot.
  static constexpr std::size_t kMaxDescribed = 128;
  static constexpr std::size_t kMaxDescribedLabelBytes = 128;

  Iterator begin() noexcept { return compiles_.begin(); }
  Iterator end() noexcept { return compiles_.end(); }
  bool empty() const noexcept { return compiles_.empty(); }
  std::size_t size() const noexcept { return compiles_.size(); }
  /// What sessions have in the table: compiles, the bytes of their source texts, and waiters.
  struct Usage {
    std::size_t compiles = 0;
    std::uint64_t held_bytes = 0;
    std::size_t waiters = 0;
  };
  const Usage& usage() const noexcept { return all_; }
  Usage usage_of(std::uint64_t session) const;

 private:
  /// Subtracts from what all have and what a session has.
  void discount(std::uint64_t session, const Usage& gone) noexcept;

  Compiles compiles_;
  std::unordered_map<RequestDigest, Iterator> by_request_;
  std::uint64_t last_serial_ = 0;
  Usage all_;
  std::unordered_map<std::uint64_t, Usage> of_session_;
  unsigned running_ = 0;
};

}  // namespace cukiln::daemon
