// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/main/admin_http.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "addons/daemon/ops/admin_http_server.hpp"
#include "addons/daemon/ops/http_responder.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

using Traffic = ops::RemoteReport::Traffic;

/// Adds a server's counters to those of its backend.
void add_traffic(std::vector<Traffic>& all, const RemoteStore::Health& health) {
  constexpr double kUsPerSecond = 1e6;
  const std::string backend = ops::backend_of(health.where);
  for (std::size_t op = 0; op < health.traffic.size(); ++op) {
    if (static_cast<RemoteOp>(op) == RemoteOp::lease && !health.has_leases) {
      continue;
    }
    const char* const name = name_of(static_cast<RemoteOp>(op));
    auto at = std::find_if(all.begin(), all.end(), [&](const Traffic& traffic) {
      return traffic.backend == backend && traffic.op == name;
    });
    if (at == all.end()) {
      at = all.insert(all.end(), {backend, name, {}, {}, 0});
      for (int status = 0; status < kRemoteStatuses; ++status) {
        at->results.emplace_back(name_of(static_cast<RemoteStatus>(status)), 0);
      }
      for (const std::uint64_t bound : kRemoteTimesUs) {
        at->buckets.emplace_back(static_cast<double>(bound) / kUsPerSecond, 0);
      }
    }
    const RemoteTraffic& traffic = health.traffic[op];
    for (std::size_t i = 0; i < traffic.ended.size(); ++i) {
      at->results[i].second += traffic.ended[i];
    }
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < at->buckets.size(); ++i) {
      cumulative += traffic.times.buckets[i];
      at->buckets[i].second += cumulative;
    }
    at->seconds += static_cast<double>(traffic.times.sum_us) / kUsPerSecond;
  }
}

ops::RemoteReport report_of(const RemoteStore& remote) {
  const RemoteStats stats = remote.stats();
  ops::RemoteReport report;
  std::array<std::uint64_t, ServerBreaker::kStates> turns{};
  for (const RemoteStore::Health& health : remote.health()) {
    const bool accepts_requests = health.state == ServerBreaker::State::closed ||
                                  health.state == ServerBreaker::State::trying;
    report.servers.push_back({health.where, !accepts_requests});
    add_traffic(report.traffic, health);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      turns[i] += health.turns[i];
    }
  }
  for (std::size_t i = 0; i < turns.size(); ++i) {
    report.breaker_transitions.emplace_back(name_of(static_cast<ServerBreaker::State>(i)),
                                            turns[i]);
  }
  report.hits = stats.hits;
  report.misses = stats.misses;
  report.waits = stats.waits;
  report.skipped = stats.skipped;
  report.stored = stats.stored;
  report.dropped = stats.dropped;
  report.queued = stats.queued;
  report.received_bytes = stats.received_bytes;
  report.sent_bytes = stats.sent_bytes;
  for (std::size_t i = 0; i < stats.requests.size(); ++i) {
    report.requests.emplace_back(name_of(static_cast<RemoteStatus>(i)), stats.requests[i]);
  }
  for (std::size_t i = 1; i < stats.rejected.size(); ++i) {  // 0: none
    report.rejected.emplace_back(name_of(static_cast<Rejection>(i)), stats.rejected[i]);
  }
  return report;
}

class RunningDaemon final : public ops::OpsSource {
 public:
  RunningDaemon(Server& server, TieredStore& store, const CurrentRemote& remote)
      : server_(server), store_(store), remote_(remote) {}

  Result<wire::DaemonSnapshot> state(std::chrono::milliseconds wait) override {
    if (auto snapshot = server_.snapshot(wait)) {
      return *std::move(snapshot);
    }
    return make_error(ErrorCode::timeout, "the daemon's event loop did not respond for {} ms",
                      wait.count());
  }
  TieredStore& store() override { return store_; }
  ops::RemoteReport remotes() override {
    const auto remote = remote_.get();
    return remote != nullptr ? report_of(*remote) : ops::RemoteReport();
  }
  Result<std::string> compiler() override { return server_.compiler(); }

 private:
  Server& server_;
  TieredStore& store_;
  const CurrentRemote& remote_;
};

}  // namespace

struct AdminHttp::State {
  State(Server& server, TieredStore& store, const CurrentRemote& remote)
      : source(server, store, remote), responder(source) {}
  ~State() {
    if (!path.empty()) {
      ::unlink(path.c_str());
    }
  }
  std::string path;  // of the socket file that this must remove; may be empty
  int port = 0;
  RunningDaemon source;
  ops::HttpResponder responder;
  std::unique_ptr<ops::AdminHttpServer> http;  // destroyed first, because it calls the others
};

AdminHttp::AdminHttp(std::unique_ptr<State> state) : state_(std::move(state)) {}
AdminHttp::~AdminHttp() = default;
int AdminHttp::port() const noexcept { return state_->port; }

Result<std::unique_ptr<AdminHttp>> AdminHttp::open(Options options, Server& server,
                                                   TieredStore& store) {
  auto state = std::make_unique<State>(server, store, *options.remote);
  std::vector<ops::HttpListener> listeners;
  if (options.inherited) {
    listeners.push_back({std::move(options.inherited), false});
  } else {
    CUKILN_TRY(ops::HttpListener listener, ops::listen_on_unix(options.path));
    state->path = options.path;
    listeners.push_back(std::move(listener));
  }
  if (!options.address.empty()) {
    CUKILN_TRY(ops::HttpListener listener, ops::listen_on_loopback(options.address));
    state->port = ops::port_of(listener);
    listeners.push_back(std::move(listener));
  }
  CUKILN_TRY(state->http, ops::AdminHttpServer::open(std::move(listeners),
                                                     [raw = state.get()](ByteView head, bool tcp) {
                                                       return raw->responder.respond(head, tcp);
                                                     }));
  return std::unique_ptr<AdminHttp>(new AdminHttp(std::move(state)));
}

}  // namespace cukiln::daemon
