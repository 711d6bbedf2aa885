// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/remote_uploads.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "addons/fleet/module_index.hpp"
#include "core/base/file.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr Backoff::Limits kRetries{milliseconds(200), milliseconds(5'000), 0.2};
constexpr Backoff::Limits kDaemonRetries{milliseconds(200), milliseconds(60'000), 0.2};
// An administrator may have changed the server's rules.
constexpr std::chrono::minutes kRefusedPause{5};
constexpr std::chrono::hours kNever{24 * 365};
constexpr std::size_t kMaxNames = 65'536;
constexpr std::size_t kSpareMarks = 64;

ObjectName name_of(const StoreObject& object) {
  const StoreEntry* const entry = std::get_if<StoreEntry>(&object);
  if (entry != nullptr) {
    return ObjectName::of(entry->key);
  }
  const StoreBlob& blob = std::get<StoreBlob>(object);
  return ObjectName::of(BlobName::id_of(blob.kind, blob.key));
}

/// Returns a copy without what is not uploaded; the bytes of a blob may be the caller's.
StoreObject copy_of(const StoreObject& object, const Clock& clock) {
  if (const StoreBlob* const blob = std::get_if<StoreBlob>(&object)) {
    return StoreBlob{blob->kind, blob->key, SharedBytes(std::string(blob->bytes.view())),
                     blob->signer, clock.now_s()};
  }
  StoreEntry entry = std::get<StoreEntry>(object);
  entry.source_text.clear();
  return entry;
}

/// Null if there is no such object any more.
std::shared_ptr<const StoreObject> read_object(StoreAdmin& store, const ObjectName& name) {
  if (auto entry = store.peek(CacheKey{name.bytes}); entry && *entry) {
    return std::make_shared<const StoreObject>(**std::move(entry));
  }
  if (auto blob = store.peek(BlobId{name.bytes}); blob && *blob) {
    return std::make_shared<const StoreObject>(**std::move(blob));
  }
  return nullptr;
}

/// Returns the objects of the store; `made_here`: without those of other machines.
std::unordered_set<ObjectName> list_objects(StoreAdmin& store, bool made_here) {
  std::unordered_set<ObjectName> names;
  if (const auto entries = store.list()) {
    for (const EntrySummary& entry : *entries) {
      if (!made_here || entry.origin == Origin::compiled) {
        names.insert(ObjectName::of(entry.key));
      }
    }
  }
  if (const auto blobs = store.list_blobs()) {
    for (const BlobSummary& blob : *blobs) {
      if (!made_here || blob.signer.empty()) {
        names.insert(ObjectName::of(blob.id));
      }
    }
  }
  return names;
}

}  // namespace

bool UploadLosses::add(const std::string& server, const UploadEnding& ending) {
  auto at = std::find_if(list_.begin(), list_.end(), [&](const auto& one) {
    return one.server == server && one.reason == ending.reason && one.detail == ending.detail;
  });
  const bool is_new = at == list_.end();
  if (is_new) {
    if (list_.size() >= kMaxReasons) {
      list_.erase(list_.begin());
    }
    at = list_.insert(list_.end(), {server, ending.reason, ending.detail, ending.advice, 0,
                                    ending.what != UploadEnding::What::kept});
  }
  ++at->objects;
  return is_new;
}

RemoteUploads::~RemoteUploads() {
  finish(milliseconds(0), false);
  std::vector<std::unique_ptr<Lane>> lanes;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    lanes.swap(lanes_);
  }
  work_.notify_all();
  for (const auto& lane : lanes) {
    if (lane->thread.joinable()) {
      lane->thread.join();
    }
  }
}

void RemoteUploads::open_lanes() {
  if (!lanes_.empty()) {
    return;
  }
  for (const auto& server : servers_) {
    if (server->is_written()) {
      lanes_.push_back(std::make_unique<Lane>(Lane{
          .server = server.get(), .backoff = Backoff(keeps_trying_ ? kDaemonRetries : kRetries)}));
    }
  }
}

void RemoteUploads::start() {
  for (const auto& lane : lanes_) {
    if (!lane->thread.joinable()) {
      lane->thread = std::thread([this, at = lane.get()] { run(*at); });
    }
  }
  work_.notify_all();
}

void RemoteUploads::use_store(const StoreAdmin& store, bool keeps_trying) {
  const MutexLock lock(mutex_);
  store_.emplace(store);
  keeps_trying_ = keeps_trying;
  open_lanes();
  if (lanes_.empty()) {
    return;
  }
  const StoreFacts facts = store_->facts();
  is_on_disk_ = !facts.generation.empty();
  if (!is_on_disk_) {
    return;
  }
  const std::string folder = join_path(facts.directory, "uploads");
  ::mkdir(folder.c_str(), 0700);  // in a folder that only this user can write
  const std::size_t objects = static_cast<std::size_t>(facts.entries + facts.blobs) + kSpareMarks;
  for (const auto& lane : lanes_) {
    const std::string identity = lane->server->where() + " " + options_.signer();
    lane->marks.open(join_path(folder, hash_of(identity).hex()), *options_.clock);
    if (lane->marks.size() > 2 * objects) {  // most are of evicted objects
      const auto names = list_objects(*store_, false);
      lane->marks.retain([&](const ObjectName& name) { return names.contains(name); });
    }
  }
  if (keeps_trying) {
    must_make_up_ = true;
    start();
  }
}

void RemoteUploads::put(const StoreObject& object) {
  const StoreEntry* const entry = std::get_if<StoreEntry>(&object);
  if (entry != nullptr) {
    // Called before the entry is queued, because its upload may end before a later call.
    leases_.begin_upload(entry->request_canonical);
  }
  const std::uint64_t bytes =
      entry != nullptr
          ? entry->cubin.image.size() + entry->request_canonical.size()
          : std::get<StoreBlob>(object).bytes.size() + std::get<StoreBlob>(object).key.size();
  const auto upload = std::make_shared<Upload>();
  upload->name = name_of(object);
  bool is_queued = false;
  {
    const MutexLock lock(mutex_);
    open_lanes();
    const bool has_room = !stopping_ && held_ < options_.max_queued &&
                          held_bytes_ + bytes <= options_.max_queued_bytes;
    if (has_room) {
      upload->object = std::make_shared<const StoreObject>(copy_of(object, *options_.clock));
      upload->bytes = bytes;
      upload->lease = entry != nullptr ? entry->request_canonical : std::string();
    }
    enqueue(upload, false);
    is_queued = has_room && upload->servers != 0;
  }
  if (entry != nullptr && !is_queued) {
    leases_.cancel_upload(entry->request_canonical);
  }
}

bool RemoteUploads::push(const ObjectName& name, bool again) {
  const MutexLock lock(mutex_);
  open_lanes();
  return push_locked(name, again);
}

bool RemoteUploads::push_locked(const ObjectName& name, bool again) {
  if (!store_ || waiting_.contains(name) || lost_.contains(name)) {
    return store_.has_value();
  }
  const auto upload = std::make_shared<Upload>();
  upload->name = name;
  return enqueue(upload, !again);
}

/// False if every server has it. It is lost if too many wait. `is_marked_before`: the servers that
/// have marked the name have this object; else it is a new one of the name.
bool RemoteUploads::enqueue(const UploadPtr& upload, bool is_marked_before) {
  for (const auto& lane : lanes_) {
    const bool is_marked = lane->marks.has(upload->name);
    if (is_marked && is_marked_before) {
      continue;
    }
    if (is_marked) {
      lane->marks.remove(upload->name);
    }
    const bool can_wait = upload->object != nullptr || store_;
    if (stopping_ || !can_wait || waiting_.size() >= kMaxNames) {
      losses_.add({}, {UploadEnding::What::lost, "queue_full", "too many uploads wait",
                       upload_advice(RemoteStatus::busy)});
      telemetry_.events.add(RemoteTelemetry::Event::dropped);
      return true;
    }
    ++upload->servers;
    lane->queue.push_back(upload);
  }
  if (upload->servers == 0) {
    return false;
  }
  ++waiting_[upload->name];
  held_ += upload->object != nullptr ? 1 : 0;
  held_bytes_ += upload->bytes;
  start();
  return true;
}

void RemoteUploads::acknowledged(const RemoteServer& server, const ObjectName& name) {
  const MutexLock lock(mutex_);
  for (const auto& lane : lanes_) {
    if (lane->server == &server && !lane->marks.has(name)) {
      lane->marks.add(name);
    }
  }
}

void RemoteUploads::run(Lane& lane) {
  MutexLock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) {
      return stopping_ || must_make_up_ || !lane.queue.empty();
    });
    if (stopping_) {
      return;
    }
    if (std::exchange(must_make_up_, false)) {
      lock.unlock();
      const auto names = list_objects(*store_, true);
      lock.lock();
      for (const ObjectName& name : names) {
        push_locked(name, false);
      }
      continue;
    }
    if (SteadyClock::now() < lane.resume_at) {
      work_.wait_until(lock, lane.resume_at, [&]() CUKILN_REQUIRES(mutex_) {
        return stopping_ || must_make_up_ || lane.queue.empty();
      });
      continue;
    }
    const UploadPtr upload = std::move(lane.queue.front());
    lane.queue.pop_front();
    lane.is_busy = true;
    const std::shared_ptr<const StoreObject> object = upload->object;
    const std::string lease = std::exchange(upload->lease, {});
    const SteadyTime deadline = std::min(SteadyClock::now() + options_.upload_timeout, drop_at_);
    // Another process may have uploaded it meanwhile.
    const bool is_needed = object != nullptr || !lane.marks.has(upload->name);
    lock.unlock();
    UploadEnding ending;
    auto content = object;
    if (is_needed) {
      content = content != nullptr ? content : read_object(*store_, upload->name);
      ending = content != nullptr ? uploader_.upload(*lane.server, upload->name, *content, deadline)
                                  : UploadEnding{UploadEnding::What::lost, "evicted",
                                                 "not in the store any more", "compile it again"};
    }
    if (!lease.empty()) {  // a retry keeps no machine waiting
      leases_.end_upload(lease);
    }
    if (content != nullptr && ending.what == UploadEnding::What::acknowledged) {
      index_request(*lane.server, *content, options_, deadline);
    }
    lock.lock();
    lane.is_busy = false;
    settle(lane, upload, std::move(ending));
    idle_.notify_all();
  }
}

void RemoteUploads::settle(Lane& lane, const UploadPtr& upload, UploadEnding ending) {
  using What = UploadEnding::What;
  const SteadyTime now = SteadyClock::now();
  switch (ending.what) {
    case What::acknowledged:
      if (!lane.marks.has(upload->name)) {
        lane.marks.add(upload->name);
      }
      if (lane.problem.what != What::acknowledged) {
        options_.log.info("{} takes uploads again", lane.server->where());
      }
      lane.problem = {};
      lane.backoff.reset();
      last_progress_ = now;
      end(*upload);
      return;
    case What::kept:
      upload->is_kept = true;
      losses_.add({}, ending);
      end(*upload);
      return;
    case What::lost: lose(lane, *upload, ending); return;
    case What::failed:
    case What::refused: break;
  }
  const bool is_new = lane.problem.what != ending.what;
  lane.problem = std::move(ending);
  if (now >= drop_at_) {
    lose(lane, *upload, lane.problem);
    return;
  }
  if (lane.refuses()) {
    lane.resume_at = keeps_trying_ ? now + kRefusedPause : now + kNever;
  } else {
    lane.resume_at = now + lane.backoff.next();
  }
  if (is_new) {
    report_problem(lane, lane.problem);
  }
  if (is_on_disk_) {
    release_object(*upload);
  }
  lane.queue.push_back(upload);  // behind the others: it may be at fault itself
}

/// A command says at its end what was lost and why: it warns only of what it waits for.
void RemoteUploads::report_problem(const Lane& lane, const UploadEnding& ending) const {
  const bool is_retried = ending.what == UploadEnding::What::failed;
  const bool is_command = store_ && !keeps_trying_;
  if (is_retried || !is_command) {
    options_.log.warn("{} takes no upload: {} ({}); {}", lane.server->where(), ending.detail,
                      ending.reason, is_retried ? "it is tried again" : ending.advice);
  }
}

void RemoteUploads::lose(const Lane& lane, Upload& upload, const UploadEnding& ending) {
  upload.is_lost = true;
  if (losses_.add(lane.server->where(), ending) && ending.what == UploadEnding::What::lost) {
    report_problem(lane, ending);
  }
  end(upload);
}

void RemoteUploads::release_object(Upload& upload) {
  held_ -= upload.object != nullptr ? 1 : 0;
  held_bytes_ -= std::exchange(upload.bytes, 0);
  upload.object.reset();
}

/// A server has ended the upload.
void RemoteUploads::end(Upload& upload) {
  if (--upload.servers != 0) {
    return;
  }
  release_object(upload);
  if (const auto at = waiting_.find(upload.name); --at->second == 0) {
    waiting_.erase(at);
  }
  if (upload.is_lost) {
    telemetry_.events.add(RemoteTelemetry::Event::dropped);
    if (lost_.size() >= kMaxNames) {
      lost_.clear();
    }
    lost_.insert(upload.name);
  } else if (!upload.is_kept) {
    telemetry_.events.add(RemoteTelemetry::Event::stored);
  }
}

bool RemoteUploads::is_settled() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
    return !lane->is_busy && (lane->queue.empty() || lane->refuses());
  });
}

bool RemoteUploads::finish(milliseconds timeout, bool extends) {
  MutexLock lock(mutex_);
  last_progress_ = SteadyClock::now();
  for (bool waits = true; waits;) {
    const SteadyTime until = last_progress_ + timeout;
    drop_at_ = until;
    const bool is_over = !idle_.wait_until(lock, until, [&]() CUKILN_REQUIRES(mutex_) {
      return is_settled() || (extends && last_progress_ + timeout > until);
    });
    waits = !is_over && !is_settled();
  }
  bool all = true;
  for (const auto& lane : lanes_) {
    const bool is_known = lane->problem.what != UploadEnding::What::acknowledged;
    const UploadEnding late{UploadEnding::What::failed, "timeout",
                            fmt::format("not done within {} s", timeout.count() / 1000),
                            upload_advice(RemoteStatus::timeout)};
    while (!lane->queue.empty()) {
      const UploadPtr upload = std::move(lane->queue.front());
      lane->queue.pop_front();
      lose(*lane, *upload, is_known ? lane->problem : late);
      all = false;
    }
  }
  // An upload in progress has the same deadline.
  idle_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) {
    return std::none_of(lanes_.begin(), lanes_.end(),
                        [](const auto& lane) { return lane->is_busy; });
  });
  drop_at_ = SteadyTime::max();
  return all;
}

std::uint64_t RemoteUploads::queued() const {
  const MutexLock lock(mutex_);
  return waiting_.size();
}

std::vector<RemoteReport::NotUploaded> RemoteUploads::not_uploaded() const {
  const MutexLock lock(mutex_);
  return losses_.list();
}

}  // namespace cukiln
