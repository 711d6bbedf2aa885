// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "addons/fleet/keys.hpp"
#include "addons/fleet/negative_cache.hpp"
#include "addons/fleet/remote_leases.hpp"
#include "addons/fleet/remote_server.hpp"
#include "addons/fleet/remote_stats.hpp"
#include "addons/fleet/remote_store_options.hpp"
#include "addons/fleet/remote_uploads.hpp"
#include "core/base/cancel_flags.hpp"
#include "core/store/remote_tier.hpp"

namespace cukiln {

/// The fleet's remote stores as one tier. A lookup queries them in order; a put writes to all. A
/// server that is down, slow or hostile costs a bounded time, and no object is used before its
/// signature is verified. Threads: safe.
class RemoteStore final : public RemoteTier {
 public:
  using Options = RemoteStoreOptions;
  using Health = RemoteHealth;

  explicit RemoteStore(Options options);
  /// Drops uploads that are not done; `finish` waits for them.
  ~RemoteStore() override = default;

  /// Opens the stores that the settings name; null if they name none. Does not use the network.
  /// Errors: invalid_argument (an address, a key, no key at all), not_found, io.
  static Result<std::unique_ptr<RemoteStore>> open(const std::string& stores,
                                                   const std::string& trust,
                                                   const std::string& sign,
                                                   std::chrono::milliseconds look_up_timeout,
                                                   const Logger& log);

  std::optional<StoreEntry> find(ByteView request_canonical, std::string_view module,
                                 SetCheck& check, Freshness freshness) override;
  RemoteRecord describe(ByteView request_canonical, std::string_view module,
                        SetCheck& check) override;
  std::optional<RemoteLease> await_peer_or_lease(ByteView request_canonical,
                                                 std::chrono::milliseconds limit,
                                                 CancelFlags cancelled,
                                                 const std::function<bool()>& found) override;
  std::optional<StoreBlob> get(const BlobName& name, Freshness freshness) override;
  void put(const StoreObject& object) override;
  bool shares_blobs() const override { return true; }

  void use_store(const StoreAdmin& store, bool keeps_trying) override {
    uploads_.use_store(store, keeps_trying);
  }
  bool push(const ObjectName& name, bool again) override {
    return writes() && uploads_.push(name, again);
  }
  bool finish(std::chrono::milliseconds timeout, bool extends) override {
    return uploads_.finish(timeout, extends);
  }
  using RemoteTier::finish;
  RemoteReport report() const override;
  RemoteProbe probe() override;

  /// True if this machine uploads to a server. A key that was revoked or has expired uploads
  /// nothing.
  bool writes() const noexcept {
    return std::any_of(servers_.begin(), servers_.end(),
                       [](const auto& server) { return server->is_written(); });
  }
  const TrustedKeys& trusted() const noexcept { return options_.trusted; }
  RemoteStats stats() const;
  std::vector<Health> health() const;

 private:
  void release_lease(ByteView request_canonical) override { leases_.release(request_canonical); }
  std::optional<StoreEntry> find_on(RemoteServer& server, ByteView request_canonical,
                                    std::string_view module, SetCheck& check, bool& absent);
  /// Looks up on each server until one has something, unless `name` is known to be absent.
  /// `look_up` sets its second argument if the server has nothing of that name.
  template <class LookUp>
  auto search(const ObjectName& name, Freshness freshness, const LookUp& look_up)
      -> decltype(look_up(std::declval<RemoteServer&>(), std::declval<bool&>()));
  /// Notes that an object that a server delivered need not be uploaded to it.
  template <class Object>
  std::optional<Object> marked(const RemoteServer& server, const ObjectName& name,
                               std::optional<Object> found);
  /// Uploads an object to see whether the server takes it. Empty, or what is wrong.
  void probe_upload(RemoteServer& server, RemoteProbe::Server& probe);
  SteadyTime look_up_deadline() const {
    return std::chrono::steady_clock::now() + options_.look_up_timeout;
  }

  Options options_;
  RemoteTelemetry telemetry_;
  NegativeCache absent_;
  std::vector<std::unique_ptr<RemoteServer>> servers_;
  RemoteLeases leases_;
  RemoteUploads uploads_;
};

}  // namespace cukiln
