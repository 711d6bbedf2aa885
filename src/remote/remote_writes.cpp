// SPDX-License-Identifier: Apache-2.0
// What a remote store does besides looking up: leases and uploads, each with a thread.
#include <algorithm>

#include "base/backoff.hpp"
#include "base/result.hpp"
#include "remote/remote_store.hpp"

namespace cukiln {

namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr Backoff::Limits kLeasePolls{milliseconds(10), milliseconds(250), 0.5};

}  // namespace

/// False: the server cannot say. Otherwise `is_free` tells that no other machine has the lease; a
/// writer holds it in `lease` then.
bool RemoteStore::acquire_lease(Server& server, ByteView request_canonical, bool& is_free,
                                RemoteLease& lease) {
  const ObjectName name = ObjectName::of_sets(request_canonical);
  // A reader has nothing to give to those who would wait for it: it only looks.
  const RemoteAnswer answer = ask(server, RemoteOp::lease, [&](RemoteEndpoint& endpoint) {
    return writes() ? endpoint.take_lease(name, options_.lease, look_up_deadline())
                    : endpoint.look_at_lease(name, look_up_deadline());
  });
  if (answer.status != RemoteStatus::ok && answer.status != RemoteStatus::absent) {
    return false;
  }
  is_free = (answer.status == RemoteStatus::ok) == writes();
  if (is_free && writes()) {
    lease = RemoteLease(*this, request_canonical);
    const std::lock_guard lock(mutex_);
    leases_[std::string(view_of(name))] = {std::string(request_canonical), &server, false};
    if (!renewer_.joinable()) {
      renewer_ = std::thread([this] { run_renewals(); });
    }
    renew_.notify_one();
  }
  return true;
}

std::optional<RemoteLease> RemoteStore::await_peer_or_lease(ByteView request_canonical,
                                                            milliseconds limit,
                                                            CancelFlags cancelled,
                                                            const std::function<bool()>& found) {
  const auto at = std::find_if(servers_.begin(), servers_.end(),
                               [](const Server& server) { return server.endpoint->has_leases(); });
  if (at == servers_.end()) {
    return RemoteLease();
  }
  const SteadyTime deadline = SteadyClock::now() + limit;
  Backoff backoff(kLeasePolls);
  for (bool waited = false;; waited = true) {
    bool is_free = false;
    RemoteLease lease;
    if (!acquire_lease(*at, request_canonical, is_free, lease)) {
      return lease;
    }
    if (is_free) {
      // The machine that held the lease before may have stored its result just now.
      if ((waited || writes()) && found()) {
        return std::nullopt;
      }
      return lease;
    }
    if (!waited) {
      const std::lock_guard lock(stats_mutex_);
      ++stats_.waits;
    }
    if (cancelled.is_set() || SteadyClock::now() >= deadline) {
      return lease;
    }
    std::this_thread::sleep_for(backoff.next());
    if (found()) {
      return std::nullopt;
    }
  }
}

void RemoteStore::drop(Server& server, const ObjectName& name) {
  static_cast<void>(ask(server, RemoteOp::lease, [&](RemoteEndpoint& endpoint) {
    return endpoint.drop_lease(name, look_up_deadline());
  }));
}

void RemoteStore::release_lease(ByteView request_canonical) {
  const ObjectName name = ObjectName::of_sets(request_canonical);
  Server* server = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto at = leases_.find(std::string(view_of(name)));
    if (at == leases_.end() || at->second.uploading) {
      return;
    }
    server = at->second.server;
    leases_.erase(at);
  }
  drop(*server, name);
}

void RemoteStore::put(const StoreEntry& entry) {
  // A set with paths of this machine is of no use elsewhere, and would tell what they are.
  if (!writes() || !entry.dependencies.portable()) {
    return;
  }
  const std::uint64_t bytes = entry.cubin.image.size() + entry.request_canonical.size();
  const ObjectName name = ObjectName::of_sets(entry.request_canonical);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= options_.most_queued ||
        queued_bytes_ + bytes > options_.most_queued_bytes) {
      const std::lock_guard stats(stats_mutex_);
      ++stats_.dropped;
      return;
    }
    if (const auto at = leases_.find(std::string(view_of(name))); at != leases_.end()) {
      at->second.uploading = true;
    }
    queue_.push_back({entry, bytes});
    queue_.back().entry.source_text.clear();
    queued_bytes_ += bytes;
    if (!uploader_.joinable()) {
      uploader_ = std::thread([this] { run_uploads(); });
    }
  }
  work_.notify_one();
}

/// The entry first: a list that names it must not be there before it.
void RemoteStore::upload(const Upload& job) {
  const StoreEntry& entry = job.entry;
  const ObjectName name =
      ObjectName::of_entry(entry.request_canonical, entry.dependencies.canonical());
  const ObjectName sets_name = ObjectName::of_sets(entry.request_canonical);
  const std::string sealed = seal_entry(entry, &*options_.key, false);
  bool arrived = false;
  for (Server& server : servers_) {
    SteadyTime deadline = SteadyClock::now() + options_.upload_timeout;
    {
      const std::lock_guard lock(mutex_);
      deadline = std::min(deadline, give_up_at_);
    }
    const auto put = [&](const ObjectName& at, ByteView bytes) {
      const RemoteAnswer answer = ask(server, RemoteOp::put, [&](RemoteEndpoint& endpoint) {
        return endpoint.put(at, bytes, deadline);
      });
      const bool ok = answer.status == RemoteStatus::ok;
      const std::lock_guard lock(stats_mutex_);
      stats_.sent_bytes += ok ? bytes.size() : 0;
      return ok;
    };
    if (sealed.size() > kMaxEnvelopeBytes || !put(name, sealed)) {
      continue;
    }
    bool absent = false;
    FleetSets sets =
        sets_on(server, entry.request_canonical, deadline, absent).value_or(FleetSets());
    sets.add({entry.key, entry.dependencies}, [&](const SetTree::Leaf& leaf) {
      auto other = get_from(server, leaf.key, deadline);
      return other ? std::optional(std::move(other->dependencies)) : std::nullopt;
    });
    arrived = put(sets_name, seal_sets(entry.request_canonical, std::move(sets), &*options_.key,
                                       options_.clock->now_s())) ||
              arrived;
  }
  absent_.remove(name);
  absent_.remove(sets_name);
  const std::lock_guard lock(stats_mutex_);
  ++(arrived ? stats_.stored : stats_.dropped);
}

void RemoteStore::run_uploads() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    const Upload job = std::move(queue_.front());
    queue_.pop_front();
    uploading_ = true;
    lock.unlock();
    upload(job);
    const ObjectName name = ObjectName::of_sets(job.entry.request_canonical);
    lock.lock();
    uploading_ = false;
    queued_bytes_ -= job.bytes;
    Server* leased = nullptr;
    if (const auto at = leases_.find(std::string(view_of(name))); at != leases_.end()) {
      leased = at->second.server;
      leases_.erase(at);
    }
    if (leased != nullptr) {
      lock.unlock();
      drop(*leased, name);
      lock.lock();
    }
    idle_.notify_all();
  }
}

void RemoteStore::run_renewals() {
  std::unique_lock lock(mutex_);
  for (;;) {
    renew_.wait(lock, [&] { return stopping_ || !leases_.empty(); });
    renew_.wait_for(lock, options_.lease / 3, [&] { return stopping_; });
    if (stopping_) {
      return;
    }
    const Names held = leases_;
    lock.unlock();
    for (const auto& [bytes, lease] : held) {
      const ObjectName name = ObjectName::of_sets(lease.request_canonical);
      static_cast<void>(ask(*lease.server, RemoteOp::lease, [&](RemoteEndpoint& endpoint) {
        return endpoint.renew_lease(name, options_.lease, look_up_deadline());
      }));
    }
    lock.lock();
  }
}

bool RemoteStore::finish(milliseconds patience) {
  std::unique_lock lock(mutex_);
  give_up_at_ = SteadyClock::now() + patience;
  const bool all =
      idle_.wait_until(lock, give_up_at_, [&] { return queue_.empty() && !uploading_; });
  if (!all) {
    const std::lock_guard stats(stats_mutex_);
    stats_.dropped += queue_.size();
    queue_.clear();
    queued_bytes_ = 0;
  }
  // One that is on its way ends by the same moment.
  idle_.wait(lock, [&] { return !uploading_; });
  give_up_at_ = SteadyTime::max();
  return all;
}

}  // namespace cukiln
