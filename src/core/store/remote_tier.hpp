// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/base/cancel_flags.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/remote_report.hpp"

namespace cukiln {

class RemoteTier;
class StoreAdmin;

/// The advisory right of this machine to compile one request for the fleet, while other machines
/// wait for its result. Released by the destructor. An empty lease means that the machine compiles
/// and no other waits for it. Movable. Threads: one at a time.
class RemoteLease {
 public:
  RemoteLease() = default;
  /// Holds what `tier` acquired for a request. `tier` outlives it, unless `keep_alive` is called.
  RemoteLease(RemoteTier& tier, ByteView request_canonical);

  bool held() const noexcept { return tier_ != nullptr; }
  void release() noexcept { *this = RemoteLease(); }
  /// `owner` lives at least until the lease is released.
  void keep_alive(std::shared_ptr<RemoteTier> owner) noexcept {
    tier_.get_deleter().owner = std::move(owner);
  }

 private:
  struct Release {
    std::string request_canonical;
    std::shared_ptr<RemoteTier> owner;
    void operator()(RemoteTier* tier) const noexcept;
  };
  std::unique_ptr<RemoteTier, Release> tier_;
};

/// What the fleet recorded of a request, and of others of its module and target. For `explain`.
struct RemoteRecord {
  struct Request {
    CacheKey key;  ///< of its last entry
    std::string canonical;
  };
  std::vector<RecordedSet> sets;  ///< of the request, the youngest first
  std::vector<Request> requests;  ///< of the same module and target, the last uploaded first
  std::string problem;  ///< why there is neither, or why the set that holds leads to no entry
};

/// The entries and blobs that other machines of the fleet made, looked up after all tiers of this
/// machine. Every call has a bounded duration. A failure is an absent entry; the implementation
/// counts it. Threads: every member is safe from any thread.
class RemoteTier {
 public:
  virtual ~RemoteTier() = default;

  enum class Freshness {
    usual,  ///< absent entries are remembered for a moment (the negative cache)
    now     ///< ignores the negative cache: another machine may be uploading the entry
  };
  /// Returns the entry whose set holds according to `check`, fully verified, with the origin
  /// `remote`. Its signer may sign the module that the caller calls `module`. Reads at most 64 KiB
  /// of sets, and the entries that may hold, usually one.
  virtual std::optional<StoreEntry> find(ByteView request_canonical, std::string_view module,
                                         SetCheck& check, Freshness freshness) = 0;

  /// Returns what the fleet recorded of a request, and of others of the module. Sends up to three
  /// requests to each server, so only commands that explain call it.
  virtual RemoteRecord describe(ByteView /*request_canonical*/, std::string_view /*module*/,
                                SetCheck& /*check*/) {
    return {};
  }

  /// Waits while another machine compiles this request, for `limit` at most, and polls `found` for
  /// its result. Empty: `found` returned true. Otherwise this machine compiles the request; with a
  /// lease that is held, the others wait until it is released, or, if the result was `put`, until
  /// the upload has ended.
  virtual std::optional<RemoteLease> await_peer_or_lease(ByteView request_canonical,
                                                         std::chrono::milliseconds limit,
                                                         CancelFlags cancelled,
                                                         const std::function<bool()>& found) = 0;

  /// Returns a blob, fully verified, with its signers, which the store that it is put into must
  /// keep. Sends one request to each server until one has it.
  virtual std::optional<StoreBlob> get(const BlobName& name, Freshness freshness) = 0;

  /// Uploads an entry or a blob in the background, as made by this machine. Does nothing if it may
  /// only read.
  virtual void put(const StoreObject& object) = 0;

  /// Sets the store of this machine, which outlives this: uploads that wait are read from it again,
  /// and what a server has acknowledged is noted beside it. `keeps_trying`: uploads are retried for
  /// as long as this lives, and those that an earlier process lost are made up for. Call it first.
  virtual void use_store(const StoreAdmin& /*store*/, bool /*keeps_trying*/) {}
  /// Uploads an object of that store in the background, unless it waits already. False if every
  /// server has acknowledged it, unless `again`, or this machine may only read.
  virtual bool push(const ObjectName& /*name*/, bool /*again*/) { return false; }

  /// True if there is a store of blobs to ask now.
  virtual bool shares_blobs() const { return false; }

  /// Waits for the uploads for at most `timeout`, with `extends` after each that a server has
  /// acknowledged, and drops the others. True if all ended in time.
  virtual bool finish(std::chrono::milliseconds /*timeout*/, bool /*extends*/) { return true; }
  bool finish(std::chrono::milliseconds timeout) { return finish(timeout, false); }
  virtual RemoteReport report() const { return {}; }
  /// Requests an object that no server has from each, and uploads one to each if this machine has a
  /// key. For `doctor`.
  virtual RemoteProbe probe() { return {}; }

 private:
  friend class RemoteLease;
  /// Ends a lease that a RemoteLease held.
  virtual void release_lease(ByteView request_canonical) = 0;
};

}  // namespace cukiln
