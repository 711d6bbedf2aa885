// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "addons/fleet/negative_cache.hpp"
#include "addons/fleet/remote_leases.hpp"
#include "addons/fleet/remote_server.hpp"
#include "addons/fleet/remote_store_options.hpp"
#include "core/base/mutex.hpp"
#include "core/store/cubin_store.hpp"

namespace cukiln {

/// Uploads entries and blobs to all servers in the background, from a bounded queue. Threads: safe;
/// starts one of its own at the first upload.
class RemoteUploads {
 public:
  RemoteUploads(const RemoteStoreOptions& options,
                const std::vector<std::unique_ptr<RemoteServer>>& servers, RemoteLeases& leases,
                RemoteTelemetry& telemetry, NegativeCache& absent)
      : options_(options),
        servers_(servers),
        leases_(leases),
        telemetry_(telemetry),
        absent_(absent) {}
  /// Drops uploads that are not done.
  ~RemoteUploads();

  /// Queues an entry or a blob. If the queue is full, drops it and counts it as dropped.
  void push(const StoreObject& object);
  /// Waits for the uploads for at most `timeout`, and drops the others. True if all ended in time.
  bool finish(std::chrono::milliseconds timeout);
  /// Returns the number of uploads that wait or are in progress.
  std::uint64_t queued() const;

 private:
  struct Upload {
    StoreObject object;
    std::uint64_t bytes = 0;
  };
  /// Queues a copy of an object. False if the queue is full.
  bool enqueue(const StoreObject& object);
  void upload(const StoreObject& object);
  /// Adds the set of an entry that a server has now to those of its request. False if they did not
  /// arrive.
  bool add_to_sets(RemoteServer& server, const StoreEntry& entry, SteadyTime deadline);
  /// Returns the deadline of requests that begin now.
  SteadyTime deadline();
  /// Puts an object on a server. False if it did not arrive.
  bool put(RemoteServer& server, const ObjectName& name, ByteView bytes, SteadyTime deadline);
  void run();

  const RemoteStoreOptions& options_;
  const std::vector<std::unique_ptr<RemoteServer>>& servers_;
  RemoteLeases& leases_;
  RemoteTelemetry& telemetry_;
  NegativeCache& absent_;

  mutable Mutex mutex_;  // acquired before that of the leases
  ConditionVariable work_, idle_;
  std::deque<Upload> queue_ CUKILN_GUARDED_BY(mutex_);
  std::uint64_t queued_bytes_ CUKILN_GUARDED_BY(mutex_) = 0;
  bool uploading_ CUKILN_GUARDED_BY(mutex_) = false;
  bool stopping_ CUKILN_GUARDED_BY(mutex_) = false;
  /// When uploads are dropped: the deadline of `finish` while it waits.
  SteadyTime drop_at_ CUKILN_GUARDED_BY(mutex_) = SteadyTime::max();
  std::thread uploader_;
};

}  // namespace cukiln
