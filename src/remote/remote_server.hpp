// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "remote/endpoint.hpp"
#include "remote/envelope.hpp"
#include "remote/negative_cache.hpp"
#include "remote/remote_stats.hpp"
#include "remote/remote_store_options.hpp"
#include "remote/server_breaker.hpp"
#include "store/cubin_store.hpp"

namespace cukiln {

/// What became of the requests to one server.
struct RemoteHealth {
  std::string where;
  ServerBreaker::State state = ServerBreaker::State::closed;
  bool has_leases = false;
  std::array<std::uint64_t, ServerBreaker::kStates> turns{};  ///< of the breaker
  std::array<RemoteTraffic, kRemoteOps> traffic{};            ///< by what was asked
};

/// One server of the fleet: sends requests through its circuit breaker, counts them, and hands out
/// objects that were verified. Threads: safe. Options, counts and cache outlive it.
class RemoteServer {
 public:
  RemoteServer(std::unique_ptr<RemoteEndpoint> endpoint, const RemoteStoreOptions& options,
               RemoteTelemetry& telemetry, NegativeCache& absent)
      : endpoint_(std::move(endpoint)), options_(options), telemetry_(telemetry), absent_(absent) {}

  using Question = std::function<RemoteAnswer(RemoteEndpoint&)>;
  /// Sends one request, counts it and reports it to the circuit breaker. What was not sent because
  /// the circuit is open is `unreachable`, uncounted.
  RemoteAnswer ask(RemoteOp op, const Question& question) { return ask(op, question, Judge::here); }

  /// The sets that are recorded for a request. Nothing: not there, or no answer; `absent` says
  /// which.
  std::optional<FleetSets> sets(ByteView request_canonical, SteadyTime deadline, bool& absent);
  std::optional<StoreEntry> entry(const CacheKey& key, SteadyTime deadline);

  bool has_leases() const noexcept { return endpoint_->has_leases(); }
  RemoteHealth health() const;
  /// Sends a request past breaker and counts.
  RemoteAnswer probe(SteadyTime deadline) {
    return endpoint_->get(ObjectName::of_sets("probe"), deadline);
  }

 private:
  /// Who reports success to the breaker: for a fetched object, the caller after verification.
  enum class Judge { here, after_verification };
  RemoteAnswer ask(RemoteOp op, const Question& question, Judge judge);
  RemoteAnswer fetch(const ObjectName& name, SteadyTime deadline);
  void reject(const ObjectName& name, Rejection why, const Error& error);

  const std::unique_ptr<RemoteEndpoint> endpoint_;
  const RemoteStoreOptions& options_;
  RemoteTelemetry& telemetry_;
  NegativeCache& absent_;
  ServerBreaker breaker_;
  struct Traffic {
    Counters<RemoteStatus, kRemoteStatuses> ended;
    RemoteTimes times;
  };
  std::array<Traffic, kRemoteOps> traffic_;  // by RemoteOp
};

}  // namespace cukiln
