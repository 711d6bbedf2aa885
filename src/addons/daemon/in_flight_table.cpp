// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/in_flight_table.hpp"

#include <algorithm>
#include <cassert>
#include <set>

namespace cukiln::daemon {

namespace {

wire::DaemonSnapshot::Job describe(const InFlightCompile& compile) {
  const EntryLabels& labels = compile.submission.order->labels;
  wire::DaemonSnapshot::Job job;
  job.name = labels.name.substr(0, InFlightTable::kMaxDescribedLabelBytes);
  job.target = labels.target.substr(0, InFlightTable::kMaxDescribedLabelBytes);
  job.request = compile.submission.digest;
  if (compile.owner) {
    job.owner_process = compile.owner->process;
  }
  job.elapsed_ms = compile.ms_since_change();
  job.waiters = static_cast<std::uint32_t>(compile.waiters.size());
  job.running = compile.running;
  job.orphaned = !compile.owner;
  return job;
}

}  // namespace

InFlightTable::Iterator InFlightTable::add(Compiles one) {
  assert(one.size() == 1);
  const Iterator it = one.begin();
  assert(!by_request_.contains(it->submission.digest));
  it->serial = ++last_serial_;
  Usage& own = of_session_[it->session];  // what may throw comes before all that counts
  by_request_[it->submission.digest] = it;
  for (Usage* const usage : {&own, &all_}) {
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
  by_request_.erase(it->submission.digest);
  for (const RequestHandle& waiter : it->waiters) {
    discount(waiter.session, {.waiters = 1});
  }
  discount(it->session, {.compiles = 1, .held_bytes = it->submission.bytes});
  Compiles taken;
  taken.splice(taken.end(), compiles_, it);
  return taken;
}

InFlightTable::Iterator InFlightTable::find(const RequestDigest& digest) {
  const auto at = by_request_.find(digest);
  return at != by_request_.end() ? at->second : compiles_.end();
}

InFlightTable::Usage InFlightTable::usage_of(std::uint64_t session) const {
  const auto at = of_session_.find(session);
  return at != of_session_.end() ? at->second : Usage();
}

void InFlightTable::discount(std::uint64_t session, const Usage& gone) noexcept {
  const auto at = of_session_.find(session);
  assert(at != of_session_.end());
  for (Usage* const usage : {&at->second, &all_}) {
    usage->compiles -= gone.compiles;
    usage->held_bytes -= gone.held_bytes;
    usage->waiters -= gone.waiters;
  }
  if (at->second.compiles == 0 && at->second.waiters == 0) {
    of_session_.erase(at);
  }
}

void InFlightTable::add_waiter(Iterator it, const RequestHandle& waiter) {
  Usage& own = of_session_[waiter.session];
  it->waiters.push_back(waiter);
  ++own.waiters;
  ++all_.waiters;
}

bool InFlightTable::drop_waiter(Iterator it, const RequestHandle& request) {
  const std::size_t before = it->waiters.size();
  const bool owner_left = it->drop(request);
  if (const std::size_t gone = before - it->waiters.size(); gone != 0) {
    discount(request.session, {.waiters = gone});
  }
  return owner_left;
}

void InFlightTable::set_running(Iterator it) noexcept {
  assert(!it->running);
  it->running = true;
  ++running_;
}

void InFlightTable::set_ended(Iterator it) noexcept {
  assert(it->running);
  it->running = false;
  --running_;
}

InFlightTable::Iterator InFlightTable::next(unsigned max_running) {
  if (running_ >= max_running) {
    return compiles_.end();
  }
  const unsigned max_of_session = std::max(1u, max_running - 1);
  std::unordered_map<std::uint64_t, unsigned> running;  // by session
  for (const InFlightCompile& one : compiles_) {
    running[one.session] += one.running ? 1 : 0;
  }
  Iterator next = compiles_.end();
  for (Iterator at = compiles_.begin(); at != compiles_.end(); ++at) {
    if (!at->running && running[at->session] < max_of_session &&
        (next == compiles_.end() || running[at->session] < running[next->session])) {
      next = at;
    }
  }
  return next;
}

void InFlightTable::describe(wire::DaemonSnapshot& snapshot) const {
  std::set<std::uint32_t> clients;
  for (const InFlightCompile& one : compiles_) {
    for (const RequestHandle& waiter : one.waiters) {
      clients.insert(waiter.process);
    }
  }
  std::size_t left = running_;
  for (const bool is_running : {true, false}) {
    for (auto at = compiles_.begin();
         at != compiles_.end() && left != 0 && snapshot.jobs.size() < kMaxDescribed; ++at) {
      if (at->running == is_running) {
        snapshot.jobs.push_back(daemon::describe(*at));
        --left;
      }
    }
    left = size() - running_;
  }
  snapshot.counters.emplace_back("compiles_running", running_);
  snapshot.counters.emplace_back("compiles_queued", size() - running_);
  snapshot.counters.emplace_back("compile_waiters", all_.waiters);
  snapshot.counters.emplace_back("compile_clients", clients.size());
}

}  // namespace cukiln::daemon
