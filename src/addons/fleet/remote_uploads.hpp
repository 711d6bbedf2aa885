// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "addons/fleet/negative_cache.hpp"
#include "addons/fleet/object_uploader.hpp"
#include "addons/fleet/remote_leases.hpp"
#include "addons/fleet/remote_server.hpp"
#include "addons/fleet/remote_store_options.hpp"
#include "addons/fleet/upload_marks.hpp"
#include "core/base/backoff.hpp"
#include "core/base/mutex.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/remote_report.hpp"
#include "core/store/store_admin.hpp"

namespace cukiln {

/// An object that one or more servers have not ended.
struct PendingUpload {
  ObjectName name;
  std::shared_ptr<const StoreObject> object;  ///< null: it is read from the store
  std::uint64_t bytes = 0;                    ///< of `object`
  std::string lease;                          ///< the request whose lease ends with an attempt
  std::size_t servers = 0;
  bool is_lost = false;
  bool is_kept = false;
};

/// Objects that were not uploaded, by server and reason.
class UploadLosses {
 public:
  /// Counts an object; true for the first one of such an ending.
  bool add(const std::string& server, const UploadEnding& ending);
  const std::vector<RemoteReport::NotUploaded>& list() const noexcept { return list_; }

 private:
  static constexpr std::size_t kMaxReasons = 64;
  std::vector<RemoteReport::NotUploaded> list_;
};

/// The uploads to one server.
struct UploadLane {
  RemoteServer* server = nullptr;
  UploadMarks marks;
  std::deque<std::shared_ptr<PendingUpload>> queue;
  Backoff backoff;
  SteadyTime resume_at{};
  UploadEnding problem;  ///< of the last attempt; acknowledged if there is none
  bool is_busy = false;
  std::thread thread;
  bool refuses() const noexcept { return problem.what == UploadEnding::What::refused; }
};

/// Uploads entries and blobs in the background, to each server from a bounded queue of its own.
/// Failed uploads are retried with back-off until `finish` or the end; a server that refuses (its
/// permissions, a certificate) gets the next one after minutes, or none. What a server has
/// acknowledged is marked. Threads: safe; starts one for each server at the first upload.
class RemoteUploads {
 public:
  RemoteUploads(const RemoteStoreOptions& options,
                const std::vector<std::unique_ptr<RemoteServer>>& servers, RemoteLeases& leases,
                RemoteTelemetry& telemetry, NegativeCache& absent)
      : options_(options),
        servers_(servers),
        leases_(leases),
        telemetry_(telemetry),
        uploader_(options, telemetry, absent) {}
  /// Drops uploads that are not done.
  ~RemoteUploads();

  /// As RemoteTier::use_store.
  void use_store(const StoreAdmin& store, bool keeps_trying);
  /// Queues an object for all servers. If the queue is full, its name waits, and it is read from
  /// the store again; without a store it is lost.
  void put(const StoreObject& object);
  /// Queues an object of the store for the servers that have not acknowledged it, unless it waits
  /// already or was lost; `again`: for all. False if all have.
  bool push(const ObjectName& name, bool again);
  /// Notes that a server has delivered an object.
  void acknowledged(const RemoteServer& server, const ObjectName& name);
  /// As RemoteTier::finish.
  bool finish(std::chrono::milliseconds timeout, bool extends);
  /// Returns the number of objects that wait or are in progress.
  std::uint64_t queued() const;
  std::vector<RemoteReport::NotUploaded> not_uploaded() const;
  /// As ObjectUploader::key_problem.
  RemoteReport::NotUploaded key_problem() const { return uploader_.key_problem(); }

 private:
  using Upload = PendingUpload;
  using UploadPtr = std::shared_ptr<PendingUpload>;
  using Lane = UploadLane;

  void open_lanes() CUKILN_REQUIRES(mutex_);
  void start() CUKILN_REQUIRES(mutex_);
  bool push_locked(const ObjectName& name, bool again) CUKILN_REQUIRES(mutex_);
  bool enqueue(const UploadPtr& upload, bool is_marked_before) CUKILN_REQUIRES(mutex_);
  void release_object(Upload& upload) CUKILN_REQUIRES(mutex_);
  void settle(Lane& lane, const UploadPtr& upload, UploadEnding ending) CUKILN_REQUIRES(mutex_);
  void lose(const Lane& lane, Upload& upload, const UploadEnding& ending) CUKILN_REQUIRES(mutex_);
  void end(Upload& upload) CUKILN_REQUIRES(mutex_);
  void report_problem(const Lane& lane, const UploadEnding& ending) const CUKILN_REQUIRES(mutex_);
  bool is_settled() const CUKILN_REQUIRES(mutex_);
  void run(Lane& lane);

  const RemoteStoreOptions& options_;
  const std::vector<std::unique_ptr<RemoteServer>>& servers_;
  RemoteLeases& leases_;
  RemoteTelemetry& telemetry_;
  ObjectUploader uploader_;

  mutable Mutex mutex_;  // acquired before that of the leases
  ConditionVariable work_, idle_;
  std::optional<StoreAdmin> store_;  // set before the first upload
  bool is_on_disk_ = false;
  bool keeps_trying_ = false;
  bool must_make_up_ CUKILN_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Lane>> lanes_ CUKILN_GUARDED_BY(mutex_);
  std::unordered_map<ObjectName, std::size_t> waiting_ CUKILN_GUARDED_BY(mutex_);
  std::unordered_set<ObjectName> lost_ CUKILN_GUARDED_BY(mutex_);
  UploadLosses losses_ CUKILN_GUARDED_BY(mutex_);
  std::size_t held_ CUKILN_GUARDED_BY(mutex_) = 0;  // objects in memory
  std::uint64_t held_bytes_ CUKILN_GUARDED_BY(mutex_) = 0;
  bool stopping_ CUKILN_GUARDED_BY(mutex_) = false;
  SteadyTime last_progress_ CUKILN_GUARDED_BY(mutex_){};
  /// When uploads are dropped: the deadline of `finish` while it waits.
  SteadyTime drop_at_ CUKILN_GUARDED_BY(mutex_) = SteadyTime::max();
};

}  // namespace cukiln
