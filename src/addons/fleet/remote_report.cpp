// SPDX-License-Identifier: Apache-2.0
// What is told about the remote stores.
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "addons/fleet/remote_store.hpp"
#include "core/base/result.hpp"
#include "core/loader/addons.hpp"

namespace cukiln {

namespace {

using Traffic = RemoteReport::Traffic;

const char* backend_of(std::string_view where) {
  return where.starts_with("file:") ? "folder" : where.starts_with("redis") ? "redis" : "http";
}

/// Adds a server's counters to those of its backend.
void add_traffic(std::vector<Traffic>& all, const RemoteHealth& health) {
  constexpr double kUsPerSecond = 1e6;
  const std::string backend = backend_of(health.where);
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

const char* advice_for(RemoteStatus status, std::string_view where) {
  const bool is_folder = backend_of(where) == std::string_view("folder");
  switch (status) {
    case RemoteStatus::denied:
      return "correct the user and password in the address, or the server's rules (Redis: ~team:* "
             "for an address that ends in /team)";
    case RemoteStatus::untrusted:
      return is_folder ? "correct the folder's owner and mode; until then it is not used"
                       : "correct the certificate; until then the store is not used";
    case RemoteStatus::hung:
      return "see whether the file server answers and mount it again; until then each miss is "
             "compiled";
    default:
      return is_folder ? "make the folder, or mount it; until then each miss is compiled"
                       : "start the server or check the network; until then each miss is compiled";
  }
}

}  // namespace

RemoteReport RemoteStore::report() const {
  const RemoteStats stats = this->stats();
  RemoteReport report;
  std::array<std::uint64_t, ServerBreaker::kStates> turns{};
  for (const RemoteHealth& server : health()) {
    const bool accepts_requests = server.state == ServerBreaker::State::closed ||
                                  server.state == ServerBreaker::State::trying;
    report.servers.push_back({server.where, backend_of(server.where), !accepts_requests});
    add_traffic(report.traffic, server);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      turns[i] += server.turns[i];
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
  report.not_uploaded = uploads_.not_uploaded();
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

void RemoteStore::probe_upload(RemoteServer& server, RemoteProbe::Server& probe) {
  const auto problem = uploads_.key_problem();
  if (problem.detail.empty()) {
    const RemoteAnswer answer =
        server.probe_upload(std::chrono::steady_clock::now() + options_.upload_timeout);
    probe.works = answer.status == RemoteStatus::ok;
    probe.detail =
        fmt::format("answers, and takes no upload: {} ({})", answer.detail, name_of(answer.status));
    probe.advice = upload_advice(answer.status);
  } else {
    probe.works = false;
    probe.detail = problem.detail + ": nothing is uploaded";
    probe.advice = problem.advice;
  }
}

RemoteProbe RemoteStore::probe() {
  RemoteProbe probe;
  for (const auto& server : servers_) {
    const auto start = std::chrono::steady_clock::now();
    const RemoteAnswer answer = server->probe(look_up_deadline());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    RemoteProbe::Server one{.where = server->health().where, .ms = took.count()};
    one.works = answer.status == RemoteStatus::ok || answer.status == RemoteStatus::absent;
    if (!one.works) {
      one.detail = answer.detail + " (" + name_of(answer.status) + ")";
      one.advice = advice_for(answer.status, server->where());
    } else if (server->is_written()) {
      probe_upload(*server, one);
    }
    probe.servers.push_back(std::move(one));
  }
  probe.writes = writes();
  probe.trusted_keys = trusted().size();
  for (const TrustedKey& key : trusted().trusted()) {
    if (key.limits.expires_s && !trusted().is_revoked(key.key)) {
      probe.expiries.push_back(
          {key.key.name, *key.limits.expires_s, !key.limits.hold_at(Clock::system().now_s())});
    }
  }
  return probe;
}

void register_fleet(Registry& registry) {
  registry.open_remote = [](const RemoteSettings& settings,
                            const Logger& log) -> Result<std::unique_ptr<RemoteTier>> {
    CUKILN_TRY(
        std::unique_ptr<RemoteTier> opened,
        RemoteStore::open(settings.stores, settings.trust, settings.sign, settings.timeout, log));
    return opened;
  };
}

}  // namespace cukiln
