// SPDX-License-Identifier: Apache-2.0
#include "remote/remote_uploads.hpp"

#include <algorithm>
#include <utility>

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

RemoteUploads::~RemoteUploads() {
  finish(std::chrono::milliseconds(0));
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (uploader_.joinable()) {
    uploader_.join();
  }
}

void RemoteUploads::push(const StoreEntry& entry) {
  // Called before the entry is queued, because its upload may end before a later call.
  leases_.begin_upload(entry.request_canonical);
  if (enqueue(entry)) {
    work_.notify_one();
  } else {
    leases_.cancel_upload(entry.request_canonical);
    telemetry_.events.add(RemoteTelemetry::Event::dropped);
  }
}

bool RemoteUploads::enqueue(const StoreEntry& entry) {
  const std::uint64_t bytes = entry.cubin.image.size() + entry.request_canonical.size();
  const MutexLock lock(mutex_);
  if (stopping_ || queue_.size() >= options_.max_queued ||
      queued_bytes_ + bytes > options_.max_queued_bytes) {
    return false;
  }
  queue_.push_back({entry, bytes});
  queue_.back().entry.source_text.clear();
  queued_bytes_ += bytes;
  if (!uploader_.joinable()) {
    uploader_ = std::thread([this] { run(); });
  }
  return true;
}

/// Uploads the entry first, so that the sets never name an entry that the server does not have.
void RemoteUploads::upload(const StoreEntry& entry) {
  const ObjectName name =
      ObjectName::of_entry(entry.request_canonical, entry.dependencies.canonical());
  const ObjectName sets_name = ObjectName::of_sets(entry.request_canonical);
  const std::string sealed = seal_entry(entry, &*options_.key, false);
  bool arrived = false;
  for (const auto& server : servers_) {
    SteadyTime deadline = SteadyClock::now() + options_.upload_timeout;
    {
      const MutexLock lock(mutex_);
      deadline = std::min(deadline, drop_at_);
    }
    const auto put = [&](const ObjectName& at, ByteView bytes) {
      const RemoteAnswer answer = server->send(RemoteOp::put, [&](RemoteEndpoint& endpoint) {
        return endpoint.put(at, bytes, deadline);
      });
      const bool ok = answer.status == RemoteStatus::ok;
      telemetry_.events.add(RemoteTelemetry::Event::sent_bytes, ok ? bytes.size() : 0);
      return ok;
    };
    if (sealed.size() > kMaxEnvelopeBytes || !put(name, sealed)) {
      continue;
    }
    bool absent = false;
    FleetSets sets = server->sets(entry.request_canonical, deadline, absent).value_or(FleetSets());
    sets.add({entry.key, entry.dependencies}, [&](const SetTree::Leaf& leaf) {
      auto other = server->entry(leaf.key, entry.labels.name, deadline);
      return other ? std::optional(std::move(other->dependencies)) : std::nullopt;
    });
    arrived = put(sets_name, seal_sets(entry.request_canonical, std::move(sets), &*options_.key,
                                       options_.clock->now_s())) ||
              arrived;
  }
  absent_.remove(name);
  absent_.remove(sets_name);
  telemetry_.events.add(arrived ? RemoteTelemetry::Event::stored : RemoteTelemetry::Event::dropped);
}

void RemoteUploads::run() {
  MutexLock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    const Upload job = std::move(queue_.front());
    queue_.pop_front();
    uploading_ = true;
    lock.unlock();
    upload(job.entry);
    leases_.end_upload(job.entry.request_canonical);
    lock.lock();
    uploading_ = false;
    queued_bytes_ -= job.bytes;
    idle_.notify_all();
  }
}

bool RemoteUploads::finish(std::chrono::milliseconds timeout) {
  MutexLock lock(mutex_);
  drop_at_ = SteadyClock::now() + timeout;
  const bool all = idle_.wait_until(
      lock, drop_at_, [&]() CUKILN_REQUIRES(mutex_) { return queue_.empty() && !uploading_; });
  if (!all) {
    telemetry_.events.add(RemoteTelemetry::Event::dropped, queue_.size());
    queue_.clear();
    queued_bytes_ = 0;
  }
  // An upload in progress has the same deadline.
  idle_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) { return !uploading_; });
  drop_at_ = SteadyTime::max();
  return all;
}

std::uint64_t RemoteUploads::queued() const {
  const MutexLock lock(mutex_);
  return queue_.size() + (uploading_ ? 1 : 0);
}

}  // namespace cukiln
