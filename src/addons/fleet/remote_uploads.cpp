// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/remote_uploads.hpp"

#include <algorithm>
#include <memory>
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
  const bool queued = enqueue(entry.cubin.image.size() + entry.request_canonical.size(), [&] {
    StoreEntry copy = entry;
    copy.source_text.clear();
    return [this, own = std::move(copy)] {
      upload(own);
      leases_.end_upload(own.request_canonical);
    };
  });
  if (!queued) {
    leases_.cancel_upload(entry.request_canonical);
  }
}

void RemoteUploads::push(const BlobName& name, ByteView bytes) {
  static_cast<void>(enqueue(bytes.size() + name.key.size(), [&] {
    auto own = std::make_shared<StoreBlob>();
    own->kind = name.kind;
    own->key = name.key;
    own->bytes = SharedBytes(std::string(bytes));
    return [this, own = std::move(own)] { upload(std::move(*own)); };
  }));
}

bool RemoteUploads::enqueue(std::uint64_t bytes,
                            const std::function<std::function<void()>()>& make) {
  {
    const MutexLock lock(mutex_);
    if (!stopping_ && queue_.size() < options_.max_queued &&
        queued_bytes_ + bytes <= options_.max_queued_bytes) {
      queue_.push_back({make(), bytes});
      queued_bytes_ += bytes;
      if (!uploader_.joinable()) {
        uploader_ = std::thread([this] { run(); });
      }
      work_.notify_one();
      return true;
    }
  }
  telemetry_.events.add(RemoteTelemetry::Event::dropped);
  return false;
}

SteadyTime RemoteUploads::deadline() {
  const MutexLock lock(mutex_);
  return std::min(SteadyClock::now() + options_.upload_timeout, drop_at_);
}

bool RemoteUploads::put(RemoteServer& server, const ObjectName& name, ByteView bytes,
                        SteadyTime deadline) {
  const RemoteAnswer answer = server.send(
      RemoteOp::put, [&](RemoteEndpoint& endpoint) { return endpoint.put(name, bytes, deadline); });
  const bool ok = answer.status == RemoteStatus::ok;
  telemetry_.events.add(RemoteTelemetry::Event::sent_bytes, ok ? bytes.size() : 0);
  return ok;
}

/// Uploads the entry first, so that the sets never name an entry that the server does not have.
void RemoteUploads::upload(const StoreEntry& entry) {
  const ObjectName name = ObjectName::of(entry.key);
  const ObjectName sets_name = ObjectName::of_sets(entry.request_canonical);
  const std::string sealed = seal_entry(entry, &*options_.key, false);
  bool arrived = false;
  for (const auto& server : servers_) {
    const SteadyTime end = deadline();
    if (sealed.size() > kMaxEnvelopeBytes || !put(*server, name, sealed, end)) {
      continue;
    }
    bool absent = false;
    FleetSets sets = server->sets(entry.request_canonical, end, absent).value_or(FleetSets());
    sets.add({entry.key, entry.dependencies}, [&](const SetTree::Leaf& leaf) {
      auto other = server->entry(leaf.key, entry.labels.name, end);
      return other ? std::optional(std::move(other->dependencies)) : std::nullopt;
    });
    arrived = put(*server, sets_name,
                  seal_sets(entry.request_canonical, std::move(sets), &*options_.key,
                            options_.clock->now_s()),
                  end) ||
              arrived;
  }
  absent_.remove(name);
  absent_.remove(sets_name);
  telemetry_.events.add(arrived ? RemoteTelemetry::Event::stored : RemoteTelemetry::Event::dropped);
}

void RemoteUploads::upload(StoreBlob blob) {
  const ObjectName name = ObjectName::of(BlobName::id_of(blob.kind, blob.key));
  blob.created_s = options_.clock->now_s();
  const std::string sealed = seal_blob(blob, &*options_.key);
  bool arrived = false;
  for (const auto& server : servers_) {
    arrived =
        (sealed.size() <= kMaxEnvelopeBytes && put(*server, name, sealed, deadline())) || arrived;
  }
  absent_.remove(name);
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
    job.run();
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
