// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/remote_uploads.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "addons/fleet/module_index.hpp"

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

void RemoteUploads::push(const StoreObject& object) {
  const StoreEntry* const entry = std::get_if<StoreEntry>(&object);
  if (entry != nullptr) {
    // Called before the entry is queued, because its upload may end before a later call.
    leases_.begin_upload(entry->request_canonical);
  }
  if (enqueue(object)) {
    return;
  }
  telemetry_.events.add(RemoteTelemetry::Event::dropped);
  if (entry != nullptr) {
    leases_.cancel_upload(entry->request_canonical);
  }
}

bool RemoteUploads::enqueue(const StoreObject& object) {
  const StoreEntry* const entry = std::get_if<StoreEntry>(&object);
  const StoreBlob* const blob = std::get_if<StoreBlob>(&object);
  const std::uint64_t bytes = entry != nullptr
                                  ? entry->cubin.image.size() + entry->request_canonical.size()
                                  : blob->bytes.size() + blob->key.size();
  const MutexLock lock(mutex_);
  if (stopping_ || queue_.size() >= options_.max_queued ||
      queued_bytes_ + bytes > options_.max_queued_bytes) {
    return false;
  }
  if (blob != nullptr) {  // its bytes may be the caller's
    queue_.push_back({StoreBlob{blob->kind,
                                blob->key,
                                SharedBytes(std::string(blob->bytes.view())),
                                {},
                                options_.clock->now_s()},
                      bytes});
  } else {
    queue_.push_back({*entry, bytes});
    std::get<StoreEntry>(queue_.back().object).source_text.clear();
  }
  queued_bytes_ += bytes;
  if (!uploader_.joinable()) {
    uploader_ = std::thread([this] { run(); });
  }
  work_.notify_one();
  return true;
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

/// Uploads an entry first, so that the sets never name an entry that the server does not have.
void RemoteUploads::upload(const StoreObject& object) {
  const StoreEntry* const entry = std::get_if<StoreEntry>(&object);
  const StoreBlob* const blob = std::get_if<StoreBlob>(&object);
  const ObjectName name = entry != nullptr ? ObjectName::of(entry->key)
                                           : ObjectName::of(BlobName::id_of(blob->kind, blob->key));
  const std::string sealed = entry != nullptr ? seal_entry(*entry, &*options_.key, false)
                                              : seal_blob(*blob, &*options_.key);
  bool arrived = false;
  for (const auto& server : servers_) {
    const SteadyTime end = deadline();
    if (sealed.size() <= kMaxEnvelopeBytes && put(*server, name, sealed, end)) {
      arrived = entry == nullptr || add_to_sets(*server, *entry, end) || arrived;
    }
  }
  absent_.remove(name);
  telemetry_.events.add(arrived ? RemoteTelemetry::Event::stored : RemoteTelemetry::Event::dropped);
  if (entry != nullptr) {
    leases_.end_upload(entry->request_canonical);
  }
  for (const auto& server : servers_) {  // after the lease, for which other machines wait
    if (entry != nullptr && arrived) {
      index_request(*server, *entry, options_, deadline());
    }
  }
}

bool RemoteUploads::add_to_sets(RemoteServer& server, const StoreEntry& entry,
                                SteadyTime deadline) {
  bool absent = false;
  FleetSets sets = server.sets(entry.request_canonical, deadline, absent).value_or(FleetSets());
  sets.add({entry.key, entry.dependencies}, [&](const SetTree::Leaf& leaf) {
    auto other = server.entry(leaf.key, entry.labels.name, deadline);
    return other ? std::optional(std::move(other->dependencies)) : std::nullopt;
  });
  const ObjectName name = ObjectName::of_sets(entry.request_canonical);
  const bool arrived = put(
      server, name,
      seal_sets(entry.request_canonical, std::move(sets), &*options_.key, options_.clock->now_s()),
      deadline);
  absent_.remove(name);
  return arrived;
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
    upload(job.object);
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
