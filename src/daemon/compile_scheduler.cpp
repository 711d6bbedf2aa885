// SPDX-License-Identifier: Apache-2.0
#include "daemon/compile_scheduler.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "daemon/compile_answers.hpp"

namespace cukiln::daemon {

namespace {

using SteadyClock = std::chrono::steady_clock;
using wire::DaemonOp;

}  // namespace

CompileScheduler::CompileScheduler(const Options& options, EventLoop& loop,
                                   CompileSupervisor& supervisor, ReplySink& replies,
                                   DaemonCounters& counters, Logger log)
    : options_(options),
      supervisor_(supervisor),
      replies_(replies),
      counters_(counters),
      log_(std::move(log)),
      progress_(loop, [this] { tell_progress(); }) {
  supervisor_.set_observer(*this);
}

bool CompileScheduler::accepts(const RequestHandle& request) {
  if (draining_) {
    ++counters_.compiles_asked;
    ++counters_.declined_draining;
    replies_.reply(request, DaemonOp::draining, {}, nullptr);
  }
  return !draining_;
}

bool CompileScheduler::recalls_failure(const RequestHandle& request, const RequestDigest& digest) {
  const auto known = failures_[request.user].recall(digest);
  if (known) {
    ++counters_.remembered_failures;
    replies_.reply(request, DaemonOp::error, wire::Refusal::of(*known).encode(), nullptr);
  }
  return known.has_value();
}

bool CompileScheduler::join(const RequestHandle& request, const CompileSubmission& submission) {
  const Place place = compiles_.find(request.user, submission.digest);
  if (place == compiles_.end()) {
    return false;
  }
  ++counters_.coalesced;
  InFlightCompile& compile = *place;
  compile.waiters.push_back(request);
  compile.submission.timeout = std::max(compile.submission.timeout, submission.timeout);
  supervisor_.extend(compile.serial, compile.submission.timeout);
  return true;
}

void CompileScheduler::decline(const RequestHandle& request, std::string why, bool later) {
  ++counters_.declined_busy;
  replies_.reply(request, DaemonOp::declined, wire::Declined{std::move(why), later}.encode(),
                 nullptr);
}

void CompileScheduler::compile(const RequestHandle& request, CompileSubmission submission) {
  if (!accepts(request)) {  // it may have begun to drain meanwhile
    return;
  }
  ++counters_.compiles_asked;
  submission.timeout = std::min(options_.runs.longest, submission.timeout);
  if (recalls_failure(request, submission.digest) || join(request, submission)) {
    return;
  }
  if (submission.is_stored) {
    ++counters_.superseded;
    return replies_.reply(request, DaemonOp::superseded, {}, nullptr);
  }
  if (compiles_.size() >= options_.max_waiting + options_.at_once ||
      compiles_.held_bytes() + submission.bytes > options_.max_held_bytes) {
    return decline(request, "too many compiles wait for their turn", true);
  }
  if (!submission.store) {
    return decline(request, submission.store.error().message(), false);
  }
  InFlightTable::Compiles one;
  InFlightCompile& fresh = one.emplace_back(replies_);
  fresh.user = request.user;
  fresh.submission = std::move(submission);
  fresh.waiters = {request};
  fresh.owner = request;
  enqueue(std::move(one));
}

void CompileScheduler::compile_ahead(CompileSubmission submission, std::uint32_t user,
                                     std::shared_ptr<const wire::SourceRoots> places) {
  failures_[user].forget(submission.digest);  // another file had caused it
  if (draining_ || compiles_.find(user, submission.digest) != compiles_.end() ||
      compiles_.size() >= options_.max_waiting ||
      compiles_.held_bytes() + submission.bytes > options_.max_held_bytes || !submission.store) {
    return;
  }
  ++counters_.compiles_ahead;
  InFlightTable::Compiles one;
  InFlightCompile& fresh = one.emplace_back(replies_);
  fresh.user = user;
  fresh.submission = std::move(submission);
  fresh.submission.timeout = options_.runs.longest;
  fresh.places = std::move(places);
  fresh.ahead = true;
  enqueue(std::move(one));
}

void CompileScheduler::enqueue(InFlightTable::Compiles one) {
  compiles_.add(std::move(one));
  if (!progress_.is_set()) {
    progress_.set_after(options_.progress_every);
  }
  start_next();
}

void CompileScheduler::start_next() {
  while (!draining_) {
    const Place next = compiles_.next(options_.at_once);
    if (next == compiles_.end()) {
      return;
    }
    start(next);
  }
}

void CompileScheduler::start(Place place) {
  CompileSupervisor::Job job;
  const CompileSubmission& wanted = place->submission;
  job.order = wanted.order;
  job.canonical = wanted.canonical;
  job.digest = wanted.digest;
  job.again = wanted.again || place->ahead;  // ahead: none of the store's sets holds
  job.limit = wanted.timeout;
  job.store = *wanted.store;
  job.here = place->ahead ? place->places : nullptr;
  place->since = SteadyClock::now();
  const auto started = supervisor_.start(place->serial, std::move(job));
  if (!started) {  // out of resources: declined, so that clients compile themselves
    CompileSupervisor::Ending ending;
    ending.result = RunResult::of(started.error());
    ending.result.kind = RunResult::Kind::declined;
    return conclude(place, std::move(ending));
  }
  compiles_.set_running(place);
}

void CompileScheduler::on_question(std::uint64_t serial, std::string path) {
  const Place place = compiles_.find(serial);
  if (place != compiles_.end() && place->owner) {
    ++counters_.questions;
    replies_.reply(*place->owner, DaemonOp::question, std::move(path), nullptr);
  }
}

void CompileScheduler::on_answer_overdue(std::uint64_t serial) {
  const Place place = compiles_.find(serial);
  if (place != compiles_.end() && place->owner) {
    ++counters_.slow_clients;
    replies_.hang_up(*place->owner);
  }
}

bool CompileScheduler::answer(const RequestHandle& from, std::string body) {
  return std::any_of(compiles_.begin(), compiles_.end(), [&](const InFlightCompile& one) {
    return one.is_owner(from) && supervisor_.answer(one.serial, body);
  });
}

void CompileScheduler::places(const RequestHandle& request, wire::SourceRoots places) {
  const auto own = std::find_if(compiles_.begin(), compiles_.end(),
                                [&](const InFlightCompile& one) { return one.is_owner(request); });
  if (own != compiles_.end()) {
    own->places = std::make_shared<const wire::SourceRoots>(std::move(places));
  }
}

void CompileScheduler::leave(const RequestHandle& request) {
  for (Place next = compiles_.begin(); next != compiles_.end();) {
    const Place place = next++;
    if (place->drop(request) && place->running) {
      supervisor_.owner_left(place->serial);  // without a further question it goes on
    }
    if (place->waiters.empty() && !place->running && !place->ahead) {
      compiles_.take(place);
    }
  }
}

void CompileScheduler::tell_progress() {
  if (compiles_.empty()) {
    return;
  }
  progress_.set_after(options_.progress_every);
  for (const InFlightCompile& one : compiles_) {
    const wire::Progress progress{one.running, one.ms_since_change()};
    for (const RequestHandle& waiter : one.waiters) {
      replies_.reply(waiter, DaemonOp::progress, progress.encode(), nullptr);
    }
  }
}

void CompileScheduler::drain() {
  draining_ = true;
  for (Place next = compiles_.begin(); next != compiles_.end();) {
    const Place place = next++;
    if (place->running) {
      if (place->ahead && place->waiters.empty()) {
        supervisor_.cancel(place->serial);
      }
      continue;
    }
    InFlightTable::Compiles taken = compiles_.take(place);
    for (const RequestHandle& waiter : std::exchange(taken.front().waiters, {})) {
      ++counters_.declined_draining;
      replies_.reply(waiter, DaemonOp::draining, {}, nullptr);
    }
  }
}

std::size_t CompileScheduler::quarantined() {
  std::size_t all = 0;
  for (auto& [user, failures] : failures_) {
    all += failures.size();
  }
  return all;
}

void CompileScheduler::remember(const InFlightCompile& compile,
                                const CompileSupervisor::Ending& ending) {
  const wire::Refusal& refusal = ending.result.refusal;
  if (ending.result.kind == RunResult::Kind::done) {
    failures_[compile.user].forget(compile.submission.digest);
    counters_.orphans_finished += compile.owner || compile.ahead ? 0 : 1;
  } else if (ending.result.kind == RunResult::Kind::failed && !ending.is_client_limit) {
    // One client's short limit is no failure of the compiler's for the others.
    failures_[compile.user].remember(compile.submission.digest,
                                     Error(refusal.code, refusal.message, refusal.log));
  }
}

/// False: it is over.
bool CompileScheduler::restart(Place place, const RunResult& result) {
  if (result.kind != RunResult::Kind::gone || draining_ || place->waiters.empty()) {
    return false;
  }
  ++counters_.restarted;
  place->hand_over();
  log_.info("{}: the client left before its last answer; it begins again for another",
            place->submission.order->labels.name);
  return true;
}

void CompileScheduler::conclude(Place place, CompileSupervisor::Ending ending) {
  InFlightTable::Compiles taken = compiles_.take(place);
  InFlightCompile& compile = taken.front();
  const RunResult& result = ending.result;
  count_run(counters_, result);
  if (result.kind == RunResult::Kind::done) {
    counters_.compile_times.add(ending.took);
  }
  const bool has_ended =
      result.kind == RunResult::Kind::done || result.kind == RunResult::Kind::failed;
  if (compiled_ && compile.places != nullptr && has_ended) {
    compiled_(compile.submission.order, compile.places, std::move(ending.looked_at));
  }
  remember(compile, ending);
  while (!compile.waiters.empty()) {
    answer_waiter(compile, compile.waiters.front(), result);
    compile.waiters.erase(compile.waiters.begin());
  }
}

void CompileScheduler::on_ended(std::uint64_t serial, CompileSupervisor::Ending ending) {
  const Place place = compiles_.find(serial);
  if (place == compiles_.end()) {
    return;
  }
  compiles_.set_ended(place);
  if (!restart(place, ending.result)) {
    // Whatever fails in telling it, the next one begins.
    const auto told = guarded([&]() -> Result<void> {
      conclude(place, std::move(ending));
      return {};
    });
    if (!told) {
      log_.error("a compile's end could not be told to all: {}", told.error().message());
    }
  }
  start_next();
}

}  // namespace cukiln::daemon
