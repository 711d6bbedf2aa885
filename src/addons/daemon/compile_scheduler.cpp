// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/compile_scheduler.hpp"

#include <algorithm>

#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

using SteadyClock = std::chrono::steady_clock;
using wire::DaemonOp;

constexpr std::size_t kInformedAtOnce = 256;

/// True if a run was declined for lack of memory or threads, and not for its NVRTC: retrying later
/// may help.
bool is_out_of_resources(const RunResult& result) {
  return result.refusal.code == ErrorCode::internal;
}

/// Counts the result of a run.
void count_run(DaemonCounters& counters, const RunResult& result) {
  switch (result.kind) {
    case RunResult::Kind::done: ++counters.compiles_ok; return;
    case RunResult::Kind::superseded: ++counters.superseded; return;
    case RunResult::Kind::declined:
      ++(is_out_of_resources(result) ? counters.declined_busy : counters.declined_compiler);
      return;
    case RunResult::Kind::owner_left: return;
    case RunResult::Kind::failed: break;
  }
  switch (result.failure_kind) {
    case CompileFailureKind::out_of_memory: ++counters.compiles_out_of_memory; return;
    case CompileFailureKind::garbage: ++counters.compiles_garbage; return;
    case CompileFailureKind::other: break;
  }
  switch (result.refusal.code) {
    case ErrorCode::internal: ++counters.compiles_crashed; return;
    case ErrorCode::timeout: ++counters.compiles_timed_out; return;
    default: ++counters.compiles_failed; return;
  }
}

/// Sends the result of `compile` to one of its waiters.
void reply_to_waiter(const InFlightCompile& compile, const RequestHandle& waiter,
                     const RunResult& result) {
  ReplySink& to = compile.sink;
  const bool is_owner = compile.is_owner(waiter);
  switch (result.kind) {
    case RunResult::Kind::done: {
      wire::EntryTerms terms = result.terms;
      terms.caused = is_owner;
      return to.reply(waiter, DaemonOp::object, terms.encode(), result.sealed);
    }
    case RunResult::Kind::superseded: return to.reply(waiter, DaemonOp::superseded, {}, nullptr);
    case RunResult::Kind::declined:
      return to.reply(waiter, DaemonOp::declined,
                      wire::Declined{result.refusal.message, is_out_of_resources(result)}.encode(),
                      nullptr);
    case RunResult::Kind::failed: {
      if (!is_owner) {  // the owner's files or limits may have caused it
        return to.reply(waiter, DaemonOp::declined,
                        wire::Declined{"another client's compile failed", true}.encode(), nullptr);
      }
      wire::Refusal refusal = result.refusal;
      refusal.set_canonical.clear();  // the owner need not compare its own files
      return to.reply(waiter, DaemonOp::error, refusal.encode(), nullptr);
    }
    case RunResult::Kind::owner_left: return to.reply(waiter, DaemonOp::draining, {}, nullptr);
  }
}

}  // namespace

CompileScheduler::CompileScheduler(const Options& options, CompileRun::Context runs,
                                   ReplySink& replies, DaemonCounters& counters)
    : options_(options),
      runs_(std::move(runs)),
      replies_(replies),
      counters_(counters),
      progress_(runs_.loop, [this] { send_progress(); }) {}

bool CompileScheduler::accepts(const RequestHandle& request) {
  if (draining_) {
    ++counters_.compile_requests;
    ++counters_.declined_draining;
    replies_.reply(request, DaemonOp::draining, {}, nullptr);
  }
  return !draining_;
}

bool CompileScheduler::refuse_if_quarantined(const RequestHandle& request,
                                             const RequestDigest& digest) {
  const auto known = failures_.recall(digest);
  if (known) {
    ++counters_.remembered_failures;
    replies_.reply(request, DaemonOp::error, wire::Refusal::of(*known).encode(), nullptr);
  }
  return known.has_value();
}

bool CompileScheduler::join(const RequestHandle& request, const CompileSubmission& submission) {
  const Iterator it = compiles_.find(submission.digest);
  if (it == compiles_.end()) {
    return false;
  }
  InFlightCompile& compile = *it;
  const auto own =
      std::count_if(compile.waiters.begin(), compile.waiters.end(),
                    [&](const RequestHandle& waiter) { return waiter.session == request.session; });
  if (!options_.waiters_of_compile.allows(static_cast<std::uint64_t>(own),
                                          compile.waiters.size()) ||
      !options_.waiters.allows(compiles_.usage_of(request.session).waiters,
                               compiles_.usage().waiters)) {
    decline(request, "too many requests wait for compiles");
    return true;
  }
  ++counters_.coalesced;
  compiles_.add_waiter(it, request);
  compile.submission.timeout = std::max(compile.submission.timeout, submission.timeout);
  if (compile.run != nullptr) {
    compile.run->extend(compile.submission.timeout);
  }
  return true;
}

void CompileScheduler::decline(const RequestHandle& request, std::string why) {
  ++counters_.declined_busy;
  replies_.reply(request, DaemonOp::declined, wire::Declined{std::move(why), true}.encode(),
                 nullptr);
}

void CompileScheduler::compile(const RequestHandle& request, CompileSubmission submission) {
  if (!accepts(request)) {  // drain() may have been called since the frame arrived
    return;
  }
  ++counters_.compile_requests;
  if (!submission.allowed) {
    ++counters_.declined_arguments;
    return replies_.reply(request, DaemonOp::declined,
                          wire::Declined{submission.allowed.error().message(), false}.encode(),
                          nullptr);
  }
  submission.timeout = std::min(options_.runs.max_time, submission.timeout);
  if (refuse_if_quarantined(request, submission.digest) || join(request, submission)) {
    return;
  }
  if (!has_room_for(request, submission)) {
    return decline(request, "too many compiles are queued");
  }
  InFlightTable::Compiles one;
  InFlightCompile& fresh = one.emplace_back(replies_);
  fresh.session = request.session;
  fresh.submission = std::move(submission);
  fresh.waiters = {request};
  fresh.owner = request;
  compiles_.add(std::move(one));
  if (!progress_.is_set()) {
    progress_.set_after(options_.progress_interval);
  }
  start_next();
}

bool CompileScheduler::has_room_for(const RequestHandle& request,
                                    const CompileSubmission& submission) const {
  const InFlightTable::Usage& all = compiles_.usage();
  const InFlightTable::Usage own = compiles_.usage_of(request.session);
  FairShare compiles = options_.queued;
  compiles.total += options_.max_running;
  return compiles.allows(own.compiles, all.compiles) &&
         options_.waiters.allows(own.waiters, all.waiters) &&
         options_.held_bytes.allows(own.held_bytes, all.held_bytes, submission.bytes);
}

void CompileScheduler::start_next() {
  while (!draining_) {
    const Iterator next = compiles_.next(options_.max_running);
    if (next == compiles_.end()) {
      return;
    }
    start(next);
  }
}

void CompileScheduler::start(Iterator it) {
  it->since = SteadyClock::now();
  auto run = CompileRun::start(runs_, *this, it->serial, it->submission);
  if (!run) {  // out of resources: decline, so that clients compile locally
    CompileRun::Completion completion;
    completion.result = RunResult::of(run.error());
    completion.result.kind = RunResult::Kind::declined;
    return conclude(it, completion);
  }
  it->run = *std::move(run);
  compiles_.set_running(it);
}

void CompileScheduler::on_question(std::uint64_t serial, std::string path) {
  const Iterator it = compiles_.find(serial);
  if (it != compiles_.end() && it->owner && it->run != nullptr) {
    ++counters_.questions;
    it->run->begin_question();
    const DaemonOp op = path.empty() ? DaemonOp::still_needed : DaemonOp::question;
    replies_.reply(*it->owner, op, std::move(path), nullptr);
  }
}

void CompileScheduler::on_answer_overdue(std::uint64_t serial) {
  const Iterator it = compiles_.find(serial);
  if (it != compiles_.end() && it->owner) {
    ++counters_.slow_clients;
    replies_.hang_up(*it->owner);
  }
}

bool CompileScheduler::answer(const RequestHandle& from, std::string body) {
  return std::any_of(compiles_.begin(), compiles_.end(), [&](const InFlightCompile& one) {
    return one.is_owner(from) && one.run != nullptr && one.run->answer(body);
  });
}

void CompileScheduler::drop(const RequestHandle& request) {
  for (Iterator next = compiles_.begin(); next != compiles_.end();) {
    const Iterator it = next++;
    if (compiles_.drop_waiter(it, request) && it->running) {
      it->run->owner_left();  // continues if it has no further question
    }
    if (it->waiters.empty() && !it->running) {
      compiles_.take(it);
    }
  }
}

void CompileScheduler::send_progress() {
  if (compiles_.empty()) {
    return;
  }
  std::size_t informed = 0;
  for (const InFlightCompile& one : compiles_) {
    if (one.serial <= last_informed_) {
      continue;
    }
    if (informed >= kInformedAtOnce) {  // continues in the loop's next round
      progress_.set_after({});
      return;
    }
    last_informed_ = one.serial;
    informed += one.waiters.size();
    const wire::Progress progress{one.running, one.ms_since_change()};
    for (const RequestHandle& waiter : one.waiters) {
      replies_.reply(waiter, DaemonOp::progress, progress.encode(), nullptr);
    }
  }
  last_informed_ = 0;
  progress_.set_after(options_.progress_interval);
}

void CompileScheduler::drain() {
  draining_ = true;
  for (Iterator next = compiles_.begin(); next != compiles_.end();) {
    const Iterator it = next++;
    if (it->running) {
      continue;
    }
    InFlightTable::Compiles taken = compiles_.take(it);
    for (const RequestHandle& waiter : std::exchange(taken.front().waiters, {})) {
      ++counters_.declined_draining;
      replies_.reply(waiter, DaemonOp::draining, {}, nullptr);
    }
  }
}

void CompileScheduler::cancel_all() {
  for (const InFlightCompile& one : compiles_) {
    if (one.run != nullptr) {
      one.run->cancel();
    }
  }
}

void CompileScheduler::remember(const InFlightCompile& compile,
                                const CompileRun::Completion& completion) {
  const wire::Refusal& refusal = completion.result.refusal;
  if (completion.result.kind == RunResult::Kind::done) {
    failures_.forget(compile.submission.digest);
    counters_.orphans_finished += compile.owner ? 0 : 1;
  } else if (completion.result.kind == RunResult::Kind::failed && !completion.is_client_limit) {
    // Not remembered: a client's own short limit says nothing about the compiler.
    failures_.remember(compile.submission.digest,
                       Error(refusal.code, refusal.message, refusal.log));
  }
}

/// Makes the next waiter the owner of a compile whose owner has left. False if the compile is over.
bool CompileScheduler::restart(Iterator it, const RunResult& result) {
  if (result.kind != RunResult::Kind::owner_left || draining_ || it->waiters.empty()) {
    return false;
  }
  ++counters_.restarted;
  it->hand_over();
  runs_.log.info("{}: restarted for another client, because its owner disconnected",
                 it->submission.order->labels.name);
  return true;
}

void CompileScheduler::conclude(Iterator it, const CompileRun::Completion& completion) {
  InFlightTable::Compiles taken = compiles_.take(it);
  InFlightCompile& compile = taken.front();
  const RunResult& result = completion.result;
  count_run(counters_, result);
  if (result.kind == RunResult::Kind::done) {
    counters_.compile_times.add(completion.took);
  }
  remember(compile, completion);
  while (!compile.waiters.empty()) {
    reply_to_waiter(compile, compile.waiters.front(), result);
    compile.waiters.pop_front();
  }
}

void CompileScheduler::on_ended(std::uint64_t serial) {
  const Iterator it = compiles_.find(serial);
  if (it == compiles_.end()) {
    return;
  }
  const CompileRun::Completion completion = it->run->finish();
  it->run.reset();
  compiles_.set_ended(it);
  if (!restart(it, completion.result)) {
    // An error in a reply must not keep the next compile from starting.
    const auto replied = guarded([&]() -> Result<void> {
      conclude(it, completion);
      return {};
    });
    if (!replied) {
      runs_.log.error("not all waiters of a compile got its result: {}", replied.error().message());
    }
  }
  start_next();
}

}  // namespace cukiln::daemon
