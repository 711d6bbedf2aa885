// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "remote/negative_cache.hpp"
#include "remote/remote_leases.hpp"
#include "remote/remote_server.hpp"
#include "remote/remote_store_options.hpp"

namespace cukiln {

/// Uploads entries to all servers in the background, from a bounded queue. Threads: safe, and one
/// of its own once there is something to upload.
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
  /// What is not uploaded yet is dropped.
  ~RemoteUploads();

  /// Without room in the queue the entry is dropped, and counted.
  void push(const StoreEntry& entry);
  /// Waits for the uploads, `patience` at most, and gives the others up. True: all arrived, or
  /// failed on their own.
  bool finish(std::chrono::milliseconds patience);
  /// Uploads that wait, or are under way.
  std::uint64_t queued() const;

 private:
  struct Upload {
    StoreEntry entry;
    std::uint64_t bytes = 0;
  };
  bool enqueue(const StoreEntry& entry);
  void upload(const StoreEntry& entry);
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
  SteadyTime give_up_at_ CUKILN_GUARDED_BY(mutex_) = SteadyTime::max();
  std::thread uploader_;
};

}  // namespace cukiln
