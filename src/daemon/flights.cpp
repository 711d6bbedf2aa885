// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "daemon/flight.hpp"

namespace cukiln::daemon {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using wire::DaemonOp;

}  // namespace

Flights::Flights(Options options, Compilers& compilers, UserStores& stores, RemoteTier* remote,
                 Replies& replies, TaskQueue& tasks, DaemonCounters& counters, Logger log)
    : options_(options),
      compilers_(compilers),
      stores_(stores),
      remote_(remote),
      replies_(replies),
      tasks_(tasks),
      counters_(counters),
      log_(std::move(log)) {}

Flights::~Flights() {
  for (Flight& flight : flights_) {
    if (flight.thread.joinable()) {
      flight.run->cancel();
      flight.thread.join();
    }
  }
}

Flights::Place Flights::find(std::uint64_t serial) {
  return std::find_if(flights_.begin(), flights_.end(),
                      [&](const Flight& flight) { return flight.serial == serial; });
}

/// What comes after it.
Flights::Place Flights::remove(Place place) {
  by_request_.erase({place->user, place->digest});
  held_bytes_ -= place->bytes;
  return flights_.erase(place);
}

void Flights::compile(const Asker& asker, const wire::CompileTerms& terms,
                      wire::CompileOrder order) {
  ++counters_.compiles_asked;
  if (draining_) {
    ++counters_.declined_draining;
    return replies_.reply(asker, DaemonOp::draining, {}, nullptr);
  }
  const milliseconds timeout = std::min(options_.longest, milliseconds(terms.timeout_ms));
  std::string canonical = order.request.canonical();
  const RequestDigest digest = CompileRequest::digest_of(canonical);
  if (const auto known = failures_[asker.user].recall(digest)) {
    ++counters_.remembered_failures;
    return replies_.reply(asker, DaemonOp::error, wire::Refusal::of(*known).encode(), nullptr);
  }
  if (const auto at = by_request_.find({asker.user, digest}); at != by_request_.end()) {
    ++counters_.coalesced;
    Flight& flight = *find(at->second);
    flight.waiters.push_back(asker);
    flight.timeout = std::max(flight.timeout, timeout);
    return;
  }
  const UserStores::Handle known_store = terms.again ? nullptr : stores_.find(asker.user);
  if (known_store != nullptr) {
    const auto sets = known_store->find_sets(digest, canonical);
    if (sets && !sets->empty()) {
      ++counters_.superseded;
      return replies_.reply(asker, DaemonOp::superseded, {}, nullptr);
    }
  }
  const std::uint64_t bytes = bytes_of(order);
  if (flights_.size() >= options_.max_waiting + options_.at_once ||
      held_bytes_ + bytes > options_.max_held_bytes) {
    ++counters_.declined_busy;
    return replies_.reply(asker, DaemonOp::declined,
                          wire::Declined{"too many compiles wait for their turn", true}.encode(),
                          nullptr);
  }
  auto store = stores_.open(asker.user);
  if (!store) {
    ++counters_.declined_busy;
    return replies_.reply(asker, DaemonOp::declined,
                          wire::Declined{store.error().message(), false}.encode(), nullptr);
  }
  Flight flight;
  flight.serial = ++last_serial_;
  flight.store = *std::move(store);
  flight.user = asker.user;
  flight.order = std::make_shared<const wire::CompileOrder>(std::move(order));
  flight.canonical = std::move(canonical);
  flight.digest = digest;
  flight.bytes = bytes;
  flight.timeout = timeout;
  flight.again = terms.again;
  flight.waiters = {asker};
  flight.owner = asker;
  begin(std::move(flight));
}

void Flights::begin(Flight flight) {
  if (flights_.empty()) {
    next_progress_ = SteadyClock::now() + options_.progress_every;
  }
  flights_.push_back(std::move(flight));
  const Flight& kept = flights_.back();
  held_bytes_ += kept.bytes;
  by_request_[{kept.user, kept.digest}] = kept.serial;
  start_next();
}

/// The first flight of whoever has the fewest running. A user who has none may begin one more than
/// there are places for, up to twice as many: others' compiles may hang. Null: none may begin.
Flights::Flight* Flights::next_in_turn() {
  std::unordered_map<std::uint32_t, unsigned> running;  // by user
  for (const Flight& flight : flights_) {
    running[flight.user] += flight.running() && !flight.ahead ? 1 : 0;
  }
  Flight* next = nullptr;
  for (Flight& flight : flights_) {
    if (!flight.running() && !flight.ahead &&
        (next == nullptr || running[flight.user] < running[next->user])) {
      next = &flight;
    }
  }
  const bool has_none = next != nullptr && running[next->user] == 0;
  return running_ < options_.at_once * (has_none ? 2 : 1) ? next : nullptr;
}

void Flights::start_next() {
  while (!draining_) {
    Flight* const next = next_in_turn();
    if (next == nullptr) {
      return start_ahead();
    }
    start(*next);
  }
}

void Flights::start(Flight& flight) {
  const std::uint64_t serial = flight.serial;
  CompileRun::Setup setup;
  setup.order = flight.order;
  setup.canonical = flight.canonical;
  setup.digest = flight.digest;
  setup.timeout = options_.longest;
  setup.again = flight.again;
  setup.compilers = &compilers_;
  setup.store = flight.store;
  setup.remote = remote_;
  setup.log = log_;
  setup.here = flight.ahead ? flight.places : nullptr;
  setup.ask = [this, serial](const std::string& path) {
    tasks_.post([this, serial, path] {
      const Place flight_place = find(serial);
      if (flight_place == flights_.end() || !flight_place->owner) {
        return;
      }
      ++counters_.questions;
      flight_place->asked_at = SteadyClock::now();
      replies_.reply(*flight_place->owner, DaemonOp::question, path, nullptr);
    });
  };
  flight.run = std::make_shared<CompileRun>(std::move(setup));
  flight.since = SteadyClock::now();
  if (flight.ahead) {
    running_ahead_ = true;
  } else {
    ++running_;
  }
  const auto began = guarded([&]() -> Result<void> {
    flight.thread = std::thread([this, serial, run = flight.run] {
      auto ran = guarded([&]() -> Result<RunResult> { return run->run(); });
      auto result = std::make_shared<RunResult>(ran ? *std::move(ran) : RunResult::of(ran.error()));
      tasks_.post([this, serial, result] { finish(serial, std::move(*result)); });
    });
    return {};
  });
  if (!began) {  // no thread, no memory: the clients have both, it may be hoped
    RunResult none = RunResult::of(began.error());
    none.kind = RunResult::Kind::declined;
    tasks_.post([this, serial, none] { finish(serial, none); });
  }
}

bool Flights::answer(const Asker& from, std::string body) {
  for (Flight& flight : flights_) {
    if (flight.running() && flight.is_owner(from) && flight.run->waits_for_answer()) {
      flight.run->answer(std::move(body));
      return true;
    }
  }
  return false;
}

void Flights::drop_waiter(Flight& flight, const Asker& asker) {
  const auto is_asker = [&](const Asker& one) {
    return one.connection == asker.connection && (asker.id == 0 || one.id == asker.id);
  };
  std::erase_if(flight.waiters, is_asker);
  if (flight.owner && is_asker(*flight.owner)) {
    flight.owner.reset();
    if (flight.running()) {
      flight.run->owner_left();  // without a further question it goes on
    } else if (!flight.waiters.empty()) {
      flight.hand_over();
    }
  }
}

void Flights::leave(const Asker& asker) {
  for (Place place = flights_.begin(); place != flights_.end();) {
    Flight& flight = *place;
    drop_waiter(flight, asker);
    if (flight.waiters.empty() && !flight.running() && !flight.ahead) {
      place = remove(place);
    } else {
      ++place;
    }
  }
}

SteadyClock::time_point Flights::tick(SteadyClock::time_point now) {
  if (flights_.empty()) {
    return SteadyClock::time_point::max();
  }
  if (now < next_progress_) {
    return next_progress_;
  }
  next_progress_ = now + options_.progress_every;
  std::vector<Asker> silent;
  for (Flight& flight : flights_) {
    const wire::Progress progress{flight.running(), ms_since(flight.since)};
    for (const Asker& waiter : flight.waiters) {
      replies_.reply(waiter, DaemonOp::progress, progress.encode(), nullptr);
    }
    if (flight.running() && flight.owner && flight.run->waits_for_answer() &&
        now - flight.asked_at > options_.answer_within) {
      silent.push_back(*flight.owner);
    }
    if (flight.running() && now - flight.since > flight.timeout) {
      flight.timed_out = true;
      flight.run->cancel();
    }
  }
  for (const Asker& client : silent) {
    replies_.give_up(client);
  }
  return next_progress_;
}

void Flights::drain() {
  draining_ = true;
  for (Place place = flights_.begin(); place != flights_.end();) {
    if (place->running()) {
      if (place->ahead && place->waiters.empty()) {
        place->run->cancel();
      }
      ++place;
      continue;
    }
    for (const Asker& waiter : place->waiters) {
      ++counters_.declined_draining;
      replies_.reply(waiter, DaemonOp::draining, {}, nullptr);
    }
    place = remove(place);
  }
}

void Flights::cancel_all() {
  for (Flight& flight : flights_) {
    if (flight.running()) {
      flight.run->cancel();
    }
  }
}

std::size_t Flights::quarantined() {
  std::size_t all = 0;
  for (auto& [user, failures] : failures_) {
    all += failures.size();
  }
  return all;
}

void Flights::describe(wire::DaemonSnapshot& snapshot) const {
  for (const Flight& flight : flights_) {
    wire::DaemonSnapshot::Job job;
    job.name = flight.order->labels.name;
    job.target = flight.order->labels.target;
    job.request = flight.digest;
    if (flight.owner) {
      job.owner_process = flight.owner->process;
      job.owner_user = flight.owner->user;
    } else if (flight.ahead) {
      job.owner_process = static_cast<std::uint32_t>(::getpid());
      job.owner_user = flight.user;
    }
    job.elapsed_ms = ms_since(flight.since);
    job.waiters = static_cast<std::uint32_t>(flight.waiters.size());
    job.running = flight.running();
    job.orphaned = !flight.owner && !flight.ahead;
    snapshot.jobs.push_back(std::move(job));
  }
}

}  // namespace cukiln::daemon
