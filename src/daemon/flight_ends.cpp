// SPDX-License-Identifier: Apache-2.0
// What becomes of those who wait when a compile has ended.

#include <utility>

#include "base/result.hpp"
#include "daemon/flight.hpp"

namespace cukiln::daemon {

using wire::DaemonOp;

namespace {

/// Declined for want of memory or a thread, which may be there later. Another NVRTC never is.
bool lacked_means(const RunResult& result) { return result.refusal.code == ErrorCode::internal; }

}  // namespace

void Flights::count(const RunResult& result) {
  switch (result.kind) {
    case RunResult::Kind::done: ++counters_.compiles_ok; return;
    case RunResult::Kind::superseded: ++counters_.superseded; return;
    case RunResult::Kind::declined:
      ++(lacked_means(result) ? counters_.declined_busy : counters_.declined_compiler);
      return;
    case RunResult::Kind::gone: return;
    case RunResult::Kind::failed: break;
  }
  switch (result.trouble) {
    case CompileFailureKind::out_of_memory: ++counters_.compiles_out_of_memory; return;
    case CompileFailureKind::garbage: ++counters_.compiles_garbage; return;
    case CompileFailureKind::other: break;
  }
  switch (result.refusal.code) {
    case ErrorCode::internal: ++counters_.compiles_crashed; return;
    case ErrorCode::timeout: ++counters_.compiles_timed_out; return;
    default: ++counters_.compiles_failed; return;
  }
}

void Flights::tell_all(Flight& flight, const RunResult& result) {
  for (const Asker& waiter : flight.waiters) {
    const bool is_owner = flight.is_owner(waiter);
    switch (result.kind) {
      case RunResult::Kind::done: {
        wire::EntryTerms terms = result.terms;
        terms.caused = is_owner;
        replies_.reply(waiter, DaemonOp::entry, terms.encode(), result.sealed);
        break;
      }
      case RunResult::Kind::superseded:
        replies_.reply(waiter, DaemonOp::superseded, {}, nullptr);
        break;
      case RunResult::Kind::declined:
        replies_.reply(waiter, DaemonOp::declined,
                       wire::Declined{result.refusal.message, lacked_means(result)}.encode(),
                       nullptr);
        break;
      case RunResult::Kind::failed: {
        if (!is_owner) {  // another client's files, and perhaps its whims: no verdict on this one's
          replies_.reply(waiter, DaemonOp::declined,
                         wire::Declined{"another client's compile failed", true}.encode(), nullptr);
          break;
        }
        wire::Refusal refusal = result.refusal;
        refusal.set_canonical.clear();  // its own files: nothing to compare
        replies_.reply(waiter, DaemonOp::error, refusal.encode(), nullptr);
        break;
      }
      case RunResult::Kind::gone: replies_.reply(waiter, DaemonOp::draining, {}, nullptr); break;
    }
  }
}

void Flights::finish(std::uint64_t serial, RunResult result) {
  const Place place = find(serial);
  if (place == flights_.end()) {
    return;
  }
  Flight& flight = *place;
  if (flight.thread.joinable()) {
    flight.thread.join();
  }
  std::string looked_at = flight.run->looked_at();
  flight.run.reset();
  if (flight.ahead) {
    running_ahead_ = false;
  } else {
    --running_;
  }
  if (flight.timed_out && result.kind == RunResult::Kind::gone) {
    result.kind = RunResult::Kind::failed;
    result.refusal =
        wire::Refusal::of(make_error(ErrorCode::timeout,
                                     "compiling {} took longer than {} ms and was ended; raise "
                                     "compile_timeout if it needs more",
                                     flight.order->labels.name, flight.timeout.count()));
  }
  count(result);
  if (result.kind == RunResult::Kind::done) {
    counters_.compile_times.add(std::chrono::steady_clock::now() - flight.since);
  }
  if (result.kind == RunResult::Kind::gone && !draining_ && !flight.waiters.empty()) {
    ++counters_.restarted;
    flight.hand_over();
    log_.info("{}: the client left before its last answer; it begins again for another",
              flight.order->labels.name);
    return start_next();
  }
  const bool has_ended =
      result.kind == RunResult::Kind::done || result.kind == RunResult::Kind::failed;
  if (compiled_ && flight.places != nullptr && has_ended) {
    compiled_(flight.order, flight.places, std::move(looked_at));
  }
  if (result.kind == RunResult::Kind::failed) {
    // One client's little patience is no failure of the compiler's for the others.
    if (!flight.timed_out || flight.timeout >= options_.longest) {
      failures_[flight.user].remember(
          flight.digest, Error(result.refusal.code, result.refusal.message, result.refusal.log));
    }
  } else if (result.kind == RunResult::Kind::done) {
    failures_[flight.user].forget(flight.digest);
    counters_.orphans_finished += flight.owner || flight.ahead ? 0 : 1;
  }
  tell_all(flight, result);
  remove(place);
  start_next();
}

}  // namespace cukiln::daemon
