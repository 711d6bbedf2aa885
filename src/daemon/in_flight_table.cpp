// SPDX-License-Identifier: Apache-2.0
#include "daemon/in_flight_table.hpp"

#include <unistd.h>

#include <algorithm>
#include <cassert>

namespace cukiln::daemon {

InFlightTable::Iterator InFlightTable::add(Compiles one) {
  assert(one.size() == 1);
  const Iterator it = one.begin();
  assert(!by_request_.contains({it->user, it->submission.digest}));
  it->serial = ++last_serial_;
  by_request_[{it->user, it->submission.digest}] = it;
  Usage& user = of_user_[it->user];
  for (Usage* const usage : {&user, &all_}) {
    ++usage->compiles;
    usage->held_bytes += it->submission.bytes;
    usage->waiters += it->waiters.size();
  }
  compiles_.splice(compiles_.end(), one);
  return it;
}

InFlightTable::Iterator InFlightTable::find(std::uint64_t serial) {
  return std::find_if(compiles_.begin(), compiles_.end(),
                      [&](const InFlightCompile& one) { return one.serial == serial; });
}

InFlightTable::Compiles InFlightTable::take(Iterator it) noexcept {
  by_request_.erase({it->user, it->submission.digest});
  const auto user = of_user_.find(it->user);
  for (Usage* const usage : {&user->second, &all_}) {
    --usage->compiles;
    usage->held_bytes -= it->submission.bytes;
    usage->waiters -= it->waiters.size();
  }
  if (user->second.compiles == 0) {
    of_user_.erase(user);
  }
  Compiles taken;
  taken.splice(taken.end(), compiles_, it);
  return taken;
}

InFlightTable::Iterator InFlightTable::find(std::uint32_t user, const RequestDigest& digest) {
  const auto at = by_request_.find({user, digest});
  return at != by_request_.end() ? at->second : compiles_.end();
}

InFlightTable::Usage InFlightTable::usage_of(std::uint32_t user) const {
  const auto at = of_user_.find(user);
  return at != of_user_.end() ? at->second : Usage();
}

void InFlightTable::add_waiter(Iterator it, const RequestHandle& waiter) {
  it->waiters.push_back(waiter);
  ++of_user_.at(it->user).waiters;
  ++all_.waiters;
}

bool InFlightTable::drop_waiter(Iterator it, const RequestHandle& request) {
  const std::size_t before = it->waiters.size();
  const bool owner_left = it->drop(request);
  const std::size_t gone = before - it->waiters.size();
  of_user_.at(it->user).waiters -= gone;
  all_.waiters -= gone;
  return owner_left;
}

void InFlightTable::set_running(Iterator it) noexcept {
  assert(!it->running);
  it->running = true;
  if (it->ahead) {
    running_ahead_ = true;
  } else {
    ++running_;
  }
}

void InFlightTable::set_ended(Iterator it) noexcept {
  assert(it->running);
  it->running = false;
  if (it->ahead) {
    running_ahead_ = false;
  } else {
    --running_;
  }
}

InFlightTable::Iterator InFlightTable::next_in_turn(unsigned max_running) {
  std::unordered_map<std::uint32_t, unsigned> running;  // by user
  for (const InFlightCompile& one : compiles_) {
    running[one.user] += one.running && !one.ahead ? 1 : 0;
  }
  Iterator next = compiles_.end();
  for (Iterator at = compiles_.begin(); at != compiles_.end(); ++at) {
    if (!at->running && !at->ahead &&
        (next == compiles_.end() || running[at->user] < running[next->user])) {
      next = at;
    }
  }
  const bool has_none = next != compiles_.end() && running[next->user] == 0;
  return running_ < max_running * (has_none ? 2 : 1) ? next : compiles_.end();
}

InFlightTable::Iterator InFlightTable::next_ahead() {
  const bool clients_wait =
      std::any_of(compiles_.begin(), compiles_.end(),
                  [](const InFlightCompile& one) { return !one.ahead && !one.running; });
  return running_ahead_ || clients_wait
             ? compiles_.end()
             : std::find_if(compiles_.begin(), compiles_.end(),
                            [](const InFlightCompile& one) { return one.ahead && !one.running; });
}

InFlightTable::Iterator InFlightTable::next(unsigned max_running) {
  const Iterator next = next_in_turn(max_running);
  return next != compiles_.end() ? next : next_ahead();
}

void InFlightTable::describe(wire::DaemonSnapshot& snapshot,
                             std::optional<std::uint32_t> only_of) const {
  for (const InFlightCompile& one : compiles_) {
    if (only_of && one.user != *only_of) {
      continue;
    }
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
