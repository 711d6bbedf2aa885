// SPDX-License-Identifier: Apache-2.0
#include "daemon/in_flight_table.hpp"

#include <unistd.h>

#include <algorithm>

namespace cukiln::daemon {

InFlightTable::Place InFlightTable::add(Compiles one) {
  const Place place = one.begin();
  place->serial = ++last_serial_;
  by_request_[{place->user, place->submission.digest}] = place;
  held_bytes_ += place->submission.bytes;
  compiles_.splice(compiles_.end(), one);
  return place;
}

InFlightTable::Place InFlightTable::find(std::uint64_t serial) {
  return std::find_if(compiles_.begin(), compiles_.end(),
                      [&](const InFlightCompile& one) { return one.serial == serial; });
}

InFlightTable::Compiles InFlightTable::take(Place place) noexcept {
  by_request_.erase({place->user, place->submission.digest});
  held_bytes_ -= place->submission.bytes;
  Compiles taken;
  taken.splice(taken.end(), compiles_, place);
  return taken;
}

InFlightTable::Place InFlightTable::find(std::uint32_t user, const RequestDigest& digest) {
  const auto at = by_request_.find({user, digest});
  return at != by_request_.end() ? at->second : compiles_.end();
}

void InFlightTable::set_running(Place place) noexcept {
  place->running = true;
  if (place->ahead) {
    running_ahead_ = true;
  } else {
    ++running_;
  }
}

void InFlightTable::set_ended(Place place) noexcept {
  place->running = false;
  if (place->ahead) {
    running_ahead_ = false;
  } else {
    --running_;
  }
}

InFlightTable::Place InFlightTable::next_in_turn(unsigned at_once) {
  std::unordered_map<std::uint32_t, unsigned> running;  // by user
  for (const InFlightCompile& one : compiles_) {
    running[one.user] += one.running && !one.ahead ? 1 : 0;
  }
  Place next = compiles_.end();
  for (Place at = compiles_.begin(); at != compiles_.end(); ++at) {
    if (!at->running && !at->ahead &&
        (next == compiles_.end() || running[at->user] < running[next->user])) {
      next = at;
    }
  }
  const bool has_none = next != compiles_.end() && running[next->user] == 0;
  return running_ < at_once * (has_none ? 2 : 1) ? next : compiles_.end();
}

InFlightTable::Place InFlightTable::next_ahead() {
  const bool clients_wait =
      std::any_of(compiles_.begin(), compiles_.end(),
                  [](const InFlightCompile& one) { return !one.ahead && !one.running; });
  return running_ahead_ || clients_wait
             ? compiles_.end()
             : std::find_if(compiles_.begin(), compiles_.end(),
                            [](const InFlightCompile& one) { return one.ahead && !one.running; });
}

InFlightTable::Place InFlightTable::next(unsigned at_once) {
  const Place next = next_in_turn(at_once);
  return next != compiles_.end() ? next : next_ahead();
}

void InFlightTable::describe(wire::DaemonSnapshot& snapshot) const {
  for (const InFlightCompile& one : compiles_) {
    wire::DaemonSnapshot::Job job;
    job.name = one.submission.order->labels.name;
    job.target = one.submission.order->labels.target;
    job.request = one.submission.digest;
    if (one.owner) {
      job.owner_process = one.owner->process;
      job.owner_user = one.owner->user;
    } else if (one.ahead) {
      job.owner_process = static_cast<std::uint32_t>(::getpid());
      job.owner_user = one.user;
    }
    job.elapsed_ms = one.ms_since_change();
    job.waiters = static_cast<std::uint32_t>(one.waiters.size());
    job.running = one.running;
    job.orphaned = !one.owner && !one.ahead;
    snapshot.jobs.push_back(std::move(job));
  }
}

}  // namespace cukiln::daemon
