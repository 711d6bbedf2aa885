// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "addons/fleet/endpoint.hpp"
#include "addons/fleet/envelope.hpp"
#include "addons/fleet/negative_cache.hpp"
#include "addons/fleet/remote_stats.hpp"
#include "addons/fleet/remote_store_options.hpp"
#include "addons/fleet/server_breaker.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/store_blob.hpp"

namespace cukiln {

/// The state of one server, and the results of the requests to it.
struct RemoteHealth {
  std::string where;
  ServerBreaker::State state = ServerBreaker::State::closed;
  bool has_leases = false;
  std::array<std::uint64_t, ServerBreaker::kStates> turns{};  ///< of the breaker
  std::array<RemoteTraffic, kRemoteOps> traffic{};            ///< by RemoteOp
};

/// One server of the fleet: sends requests through its circuit breaker, counts them, and returns
/// verified objects only. Options, telemetry and cache must outlive it. Threads: safe.
class RemoteServer {
 public:
  RemoteServer(std::unique_ptr<RemoteEndpoint> endpoint, const RemoteStoreOptions& options,
               RemoteTelemetry& telemetry, NegativeCache& absent)
      : endpoint_(std::move(endpoint)), options_(options), telemetry_(telemetry), absent_(absent) {}

  using Request = std::function<RemoteAnswer(RemoteEndpoint&)>;
  /// Sends one request, counts it and reports it to the circuit breaker. If the circuit is open,
  /// sends nothing, counts the request as skipped and returns `unreachable`.
  RemoteAnswer send(RemoteOp op, const Request& request) {
    return send(op, request, Success::on_reply);
  }

  /// Fetches the sets recorded for a request. Returns nothing if the server has none, in which case
  /// it sets `absent`, or if it sent no valid object.
  std::optional<FleetSets> sets(ByteView request_canonical, SteadyTime deadline, bool& absent);
  /// Sends one request of an upload and counts it. Uploads have retries of their own, and no caller
  /// waits for them, so the circuit breaker neither stops them nor learns from them.
  RemoteAnswer send_upload(RemoteOp op, const Request& request) {
    return send(op, request, Success::none);
  }
  /// Fetches the sets that an upload adds to: none if the server has no valid ones. The answer is
  /// ok, or why they are not known.
  RemoteAnswer sets_of_upload(ByteView request_canonical, SteadyTime deadline, FleetSets& sets);

  /// Fetches an entry whose signers are trusted for the module that the caller calls `module`.
  /// Returns nothing if the server has none, or sent no valid object.
  std::optional<StoreEntry> entry(const CacheKey& key, std::string_view module, SteadyTime deadline,
                                  bool is_for_upload = false);
  /// Fetches a blob. Returns nothing if the server has none, in which case it sets `absent`, or if
  /// it sent no valid object.
  std::optional<StoreBlob> blob(const BlobId& id, SteadyTime deadline, bool& absent);

  const std::string& where() const noexcept { return endpoint_->where(); }
  /// True if this machine may upload to it: it has a key, or none is needed there.
  bool is_written() const noexcept {
    return !endpoint_->is_read_only() && (options_.key || takes_unsigned());
  }
  bool takes_unsigned() const noexcept { return endpoint_->takes_unsigned(); }
  bool has_parts() const noexcept { return endpoint_->has_parts(); }
  bool has_leases() const noexcept { return endpoint_->has_leases(); }
  RemoteHealth health() const;
  /// Sends a request without the circuit breaker, and does not count it.
  RemoteAnswer probe(SteadyTime deadline) {
    return endpoint_->get(ObjectName::of_sets("probe"), deadline);
  }
  /// Puts a small object of its own, signed by the key, and reads it again; also uncounted.
  RemoteAnswer probe_upload(SteadyTime deadline);

 private:
  /// When success is reported to the breaker: for a fetched object by the caller, after it has
  /// verified the object; of uploads never.
  enum class Success { on_reply, after_verification, none };
  RemoteAnswer send(RemoteOp op, const Request& request, Success success);
  /// Fetches an object and opens it with `open`, which takes the bytes and where to write the
  /// reason of a rejection. Returns nothing if the answer has none, or if `open` rejects it.
  template <class Open>
  auto fetch(const ObjectName& name, SteadyTime deadline, Success success, RemoteAnswer& answer,
             const Open& open)
      -> std::optional<typename decltype(open(ByteView(), std::declval<Rejection&>()))::value_type>;
  std::optional<FleetSets> fetch_sets(ByteView request_canonical, SteadyTime deadline,
                                      Success success, RemoteAnswer& answer);
  /// Joins the parts that are valid.
  std::optional<FleetSets> fetch_parts(ByteView request_canonical, SteadyTime deadline,
                                       Success success, RemoteAnswer& answer);
  Result<FleetSets> open(ByteView sets, ByteView request_canonical, Rejection& why) const;
  void reject(const ObjectName& name, Rejection why, const Error& error);

  const std::unique_ptr<RemoteEndpoint> endpoint_;
  const RemoteStoreOptions& options_;
  RemoteTelemetry& telemetry_;
  NegativeCache& absent_;
  ServerBreaker breaker_;
  std::atomic_flag has_failed_;  // only the first failure of a process is a warning
  struct Traffic {
    Counters<RemoteStatus, kRemoteStatuses> ended;
    RemoteTimes times;
  };
  std::array<Traffic, kRemoteOps> traffic_;  // by RemoteOp
};

}  // namespace cukiln
