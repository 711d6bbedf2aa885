// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <thread>

#include "addons/fleet/remote_server.hpp"
#include "addons/fleet/remote_store_options.hpp"
#include "core/base/mutex.hpp"
#include "core/store/object_name.hpp"

namespace cukiln {

/// What a machine that waits knows of a peer's lease. Whoever may write to the server can keep a
/// lease there for ever, but only a machine with a trusted key can renew one: its token is signed
/// and counts. So a lease is believed for as long as it lasts, anew after each renewal.
class PeerLease {
 public:
  PeerLease(const RemoteStoreOptions& options, ByteView request_canonical);
  /// Whether to go on waiting for the peer, after its token was read.
  bool is_alive(ByteView token, SteadyTime now);

 private:
  const RemoteStoreOptions& options_;
  ObjectName name_;
  std::map<std::string, std::uint64_t> renewals_;  ///< by holder: a token read before is no renewal
  std::optional<SteadyTime> believed_until_;
};

/// The leases that this machine holds in the fleet: acquires, renews and releases them. A lease
/// whose result is being uploaded is held until the upload has ended. Threads: safe; starts one of
/// its own at the first lease.
class RemoteLeases {
 public:
  explicit RemoteLeases(const RemoteStoreOptions& options) : options_(options) {}
  ~RemoteLeases();

  enum class State {
    unknown,       ///< the server did not reply
    held_by_peer,  ///< another machine has it
    free,          ///< no machine has it; this one cannot upload, so it did not acquire it
    acquired       ///< this machine has it now
  };
  struct Attempt {
    State state = State::unknown;
    std::string token;  ///< of the peer; empty if its lease just ended
  };
  /// What this machine offers in each attempt to acquire a lease; made by the first one.
  struct Claim {
    std::string holder;  ///< random
    std::string token;   ///< signed
  };
  /// Acquires the lease of a request. A machine that cannot upload only queries it.
  Attempt acquire(RemoteServer& server, ByteView request_canonical, Claim& claim);

  /// Ends a lease, unless its result is being uploaded.
  void release(ByteView request_canonical);
  /// Marks the result as being uploaded: `end_upload` and not `release` then ends the lease.
  void begin_upload(ByteView request_canonical);
  /// Reverts `begin_upload` for a result that is not uploaded.
  void cancel_upload(ByteView request_canonical);
  /// Ends the lease of a result whose upload has ended.
  void end_upload(ByteView request_canonical);

 private:
  struct Lease {
    std::string request_canonical;
    RemoteServer* server = nullptr;
    bool uploading = false;
    std::string holder;          ///< random
    std::uint64_t renewals = 0;  ///< with the acquisition
  };
  using Leases = std::map<std::string, Lease>;  // by the name's bytes

  void run_renewals();
  std::string token_of(const Lease& lease) const;
  void set_uploading(ByteView request_canonical, bool uploading);
  void send_release(RemoteServer& server, const ObjectName& name);
  SteadyTime deadline() const {
    return std::chrono::steady_clock::now() + options_.look_up_timeout;
  }

  const RemoteStoreOptions& options_;
  Mutex mutex_;
  ConditionVariable renew_;
  bool stopping_ CUKILN_GUARDED_BY(mutex_) = false;
  Leases leases_ CUKILN_GUARDED_BY(mutex_);
  std::thread renewer_;  // started under mutex_, joined by the destructor
};

}  // namespace cukiln
