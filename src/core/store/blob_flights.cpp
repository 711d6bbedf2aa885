// SPDX-License-Identifier: Apache-2.0
#include "core/store/blob_flights.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/backoff.hpp"
#include "core/base/clock.hpp"
#include "core/base/file.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr Backoff::Limits kFlightPolls{milliseconds(1), milliseconds(20)};
constexpr ByteView kDropped = "dropped";

/// The time since a lock file was locked; zero if the file is gone.
milliseconds age_of(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    return milliseconds(0);
  }
  const std::int64_t locked_ns =
      std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  const std::int64_t age_ns = Clock::system().now_ns() - locked_ns;
  return milliseconds(std::max<std::int64_t>(age_ns / 1'000'000, 0));
}

}  // namespace

/// How many flights each thread has. A forked child has a copy, so that it does not wait for its
/// parent, which may wait for it.
struct BlobFlights::Holders {
  Mutex mutex;
  std::map<std::thread::id, std::size_t> flights CUKILN_GUARDED_BY(mutex);
};

BlobFlights::BlobFlights() : holders_(std::make_shared<Holders>()) {}

BlobFlights::Flight& BlobFlights::Flight::operator=(Flight&& other) noexcept {
  if (this != &other) {
    drop();
    lock_ = std::move(other.lock_);
    path_ = std::move(other.path_);
    holders_ = std::move(other.holders_);
    thread_ = other.thread_;
  }
  return *this;
}

void BlobFlights::Flight::forget_thread() noexcept {
  const std::shared_ptr<Holders> holders = std::move(holders_);
  if (holders == nullptr) {
    return;
  }
  const ForkSafeLock lock(holders->mutex);
  const auto at = holders->flights.find(thread_);
  if (at != holders->flights.end() && --at->second == 0) {
    holders->flights.erase(at);
  }
}

void BlobFlights::Flight::finish() noexcept {
  lock_.remove_and_release(path_);
  forget_thread();
}

void BlobFlights::Flight::drop() noexcept {
  lock_.write_line(kDropped);
  lock_.release();
  forget_thread();
}

bool BlobFlights::this_thread_has_flight() const {
  const ForkSafeLock lock(holders_->mutex);
  return holders_->flights.count(std::this_thread::get_id()) != 0;
}

void BlobFlights::start(Outcome& outcome, FileLock lock, const std::string& path) {
  outcome.flight.thread_ = std::this_thread::get_id();
  {
    const ForkSafeLock guard(holders_->mutex);
    ++holders_->flights[outcome.flight.thread_];
  }
  outcome.flight.holders_ = holders_;
  outcome.flight.path_ = path;
  outcome.flight.lock_ = std::move(lock);
}

Result<BlobFlights::Outcome> BlobFlights::take(const BlobName& name, const Wait& wait,
                                               const std::function<bool()>& is_stored) {
  Outcome outcome;
  const auto without_lock = [&](std::string reason) {
    outcome.reason = std::move(reason);
    return std::move(outcome);
  };
  if (wait.lock_folder.empty()) {
    return without_lock("the store has no folder for locks");
  }
  const std::string path = join_path(wait.lock_folder, name.id.hex() + ".lock");
  const bool may_wait = !this_thread_has_flight();
  const auto deadline = steady_clock::now() + wait.limit;
  Backoff backoff(kFlightPolls);
  for (;;) {
    auto lock = FileLock::acquire_removable(path);
    if (lock) {
      if (outcome.waited && lock->first_line() == kDropped) {
        return without_lock("the caller that was producing it gave up");
      }
      lock->write_line(fmt::format("pid {} produces a blob of kind {}", ::getpid(), name.kind));
      if (is_stored()) {
        lock->remove_and_release(path);
        outcome.stored = true;
        return outcome;
      }
      start(outcome, *std::move(lock), path);
      return outcome;
    }
    if (lock.error().code() != ErrorCode::timeout) {
      return without_lock(lock.error().message());
    }
    if (!may_wait) {
      return without_lock("this thread is producing another blob");
    }
    const auto now = steady_clock::now();
    const auto end = std::min(deadline, now + (wait.limit - age_of(path)));
    if (now >= end) {
      return without_lock(fmt::format("another caller has been producing it for longer than {} ms",
                                      wait.limit.count()));
    }
    outcome.waited = true;
    do {
      if (wait.cancelled.is_set()) {
        return make_error(ErrorCode::timeout,
                          "cancelled while another caller was producing a blob of kind {}",
                          name.kind);
      }
      std::this_thread::sleep_for(backoff.next());
    } while (steady_clock::now() < end && FileLock::holder(path));
    if (is_stored()) {
      outcome.stored = true;
      return outcome;
    }
  }
}

}  // namespace cukiln
