// SPDX-License-Identifier: Apache-2.0
#include "core/store/blob_leases.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/file.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

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

/// The threads that have leases, each once for each of them. A forked child has a copy, so that it
/// does not wait for its parent, which may wait for it.
struct BlobLeases::Holders {
  Mutex mutex;
  std::multiset<std::thread::id> threads CUKILN_GUARDED_BY(mutex);
};

BlobLeases::BlobLeases() : holders_(std::make_shared<Holders>()) {}

BlobLeases::Lease& BlobLeases::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    drop();
    lock_ = std::move(other.lock_);
    path_ = std::move(other.path_);
    holders_ = std::move(other.holders_);
    thread_ = other.thread_;
  }
  return *this;
}

void BlobLeases::Lease::forget_thread() noexcept {
  if (const std::shared_ptr<Holders> holders = std::move(holders_)) {
    const ForkSafeLock lock(holders->mutex);
    holders->threads.erase(holders->threads.find(thread_));
  }
}

void BlobLeases::Lease::finish() noexcept {
  lock_.remove_and_release(path_);
  forget_thread();
}

void BlobLeases::Lease::drop() noexcept {
  lock_.write_line(kDropped);
  lock_.release();
  forget_thread();
}

Result<BlobLeases::Outcome> BlobLeases::take(const BlobName& name, const Wait& wait,
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
  const auto thread = std::this_thread::get_id();
  const auto deadline = steady_clock::now() + wait.limit;
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
      const ForkSafeLock guard(holders_->mutex);
      holders_->threads.insert(thread);
      outcome.lease.lock_ = *std::move(lock);
      outcome.lease.path_ = path;
      outcome.lease.holders_ = holders_;
      outcome.lease.thread_ = thread;
      return outcome;
    }
    if (lock.error().code() != ErrorCode::timeout) {
      return without_lock(lock.error().message());
    }
    {
      const ForkSafeLock guard(holders_->mutex);
      if (holders_->threads.count(thread) != 0) {
        return without_lock("this thread is producing another blob");
      }
    }
    const auto now = steady_clock::now();
    const auto end = std::min(deadline, now + (wait.limit - age_of(path)));
    if (now >= end) {
      return without_lock(fmt::format("another caller has been producing it for longer than {} ms",
                                      wait.limit.count()));
    }
    outcome.waited = true;
    static_cast<void>(FileLock::await_release(path, end, wait.cancelled));
    if (wait.cancelled.is_set()) {
      return make_error(ErrorCode::timeout,
                        "cancelled while another caller was producing a blob of kind {}",
                        name.kind);
    }
    if (is_stored()) {
      outcome.stored = true;
      return outcome;
    }
  }
}

Result<FoundOrLeased> get_or_lease(TieredStore& tiers, const BlobName& name, milliseconds wait,
                                   CancelFlags cancelled) {
  FoundOrLeased got{tiers.search(name), {}};
  if (!got.blob) {
    CUKILN_TRY(auto outcome, tiers.leases().take(name, {tiers.lock_folder(), wait, cancelled}, [&] {
      got.blob = tiers.search_disks(name);  // its producer put it there
      return got.blob.has_value();
    }));
    if (outcome.waited) {
      tiers.count("blob_waits");
    }
    if (!outcome.stored && !outcome.lease.exclusive()) {
      tiers.log().debug("a blob of kind {} is produced without a lock: {}", name.kind,
                        outcome.reason);
    }
    got.lease = std::move(outcome.lease);
  }
  tiers.count(got.blob ? "blob_hits" : "blob_misses");
  return got;
}

}  // namespace cukiln
