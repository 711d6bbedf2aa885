// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/ops/metrics_text.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "addons/daemon/client/daemon_client.hpp"
#include "addons/daemon/ops/exposition.hpp"
#include "addons/daemon/ops/process_metrics.hpp"
#include "core/base/clock.hpp"
#include "core/base/histogram.hpp"
#include "core/base/result.hpp"
#include "core/loader/not_stored.hpp"
#include "core/loader/stats_fields.hpp"
#include "core/store/store_admin.hpp"

#include <cukiln/version.hpp>

namespace cukiln::ops {

namespace {

constexpr std::string_view kNvrtc = "nvrtc ";

/// The error codes of store operations.
constexpr ErrorCode kStoreErrors[] = {ErrorCode::io, ErrorCode::timeout, ErrorCode::corrupt,
                                      ErrorCode::incompatible};

/// Maps a counter of the daemon or of the store to a sample. The rows of one metric must be
/// adjacent; the first has its help text.
struct CounterRow {
  std::string_view counter, metric, labels, help;
};

constexpr CounterRow kDaemonCounters[] = {
    {"compiles_ok", "compiles_total", R"(result="ok")", "Compiles by this daemon, by result."},
    {"compiles_failed", "compiles_total", R"(result="error")", ""},
    {"compiles_crashed", "compiles_total", R"(result="crash")", ""},
    {"compiles_timed_out", "compiles_total", R"(result="timeout")", ""},
    {"compiles_out_of_memory", "compiles_total", R"(result="oom")", ""},
    {"compiles_garbage", "compiles_total", R"(result="garbage")", ""},
    {"coalesced", "singleflight_coalesced_total", "", "Requests that joined an in-flight compile."},
    {"superseded", "singleflight_superseded_total", "",
     "Compile requests answered with a store lookup, because the store has entries for them."},
    {"restarted", "compiles_restarted_total", "",
     "Compiles restarted for another client, because their owner disconnected."},
    {"orphans_finished", "compiles_orphaned_total", "",
     "Compiles that finished after their owner disconnected."},
    {"remembered_failures", "compiles_refused_total", "",
     "Compile requests refused, because the same compile failed a moment before."},
    {"questions", "compile_questions_total", "", "Files requested from clients."},
    {"connections_accepted", "ipc_connections_total", "", "Accepted client connections."},
    {"rejected_user", "ipc_connections_rejected_total", R"(reason="uid")",
     "Rejected client connections, by reason."},
    {"rejected_limit", "ipc_connections_rejected_total", R"(reason="limit")", ""},
    {"rejected_version", "ipc_connections_rejected_total", R"(reason="version")", ""},
    {"rejected_draining", "ipc_connections_rejected_total", R"(reason="draining")", ""},
    {"requests_obtain_ok", "ipc_requests_total", R"(op="obtain",result="ok")",
     "Client requests, by operation and result."},
    {"requests_obtain_miss", "ipc_requests_total", R"(op="obtain",result="miss")", ""},
    {"requests_obtain_error", "ipc_requests_total", R"(op="obtain",result="error")", ""},
    {"requests_obtain_superseded", "ipc_requests_total", R"(op="obtain",result="superseded")", ""},
    {"requests_obtain_declined", "ipc_requests_total", R"(op="obtain",result="declined")", ""},
    {"requests_obtain_draining", "ipc_requests_total", R"(op="obtain",result="draining")", ""},
    {"requests_get_blob_ok", "ipc_requests_total", R"(op="get_blob",result="ok")", ""},
    {"requests_get_blob_miss", "ipc_requests_total", R"(op="get_blob",result="miss")", ""},
    {"requests_get_blob_error", "ipc_requests_total", R"(op="get_blob",result="error")", ""},
    {"requests_put_blob_ok", "ipc_requests_total", R"(op="put_blob",result="ok")", ""},
    {"requests_put_blob_error", "ipc_requests_total", R"(op="put_blob",result="error")", ""},
    {"entries_sent", "ipc_entries_sent_total", "", "Entries sent for lookups."},
    {"declined_busy", "ipc_requests_declined_total", R"(reason="busy")",
     "Compile requests declined, by reason. Their clients compile locally."},
    {"declined_compiler", "ipc_requests_declined_total", R"(reason="compiler")", ""},
    {"declined_draining", "ipc_requests_declined_total", R"(reason="draining")", ""},
    {"declined_arguments", "ipc_requests_declined_total", R"(reason="arguments")", ""},
    {"slow_clients", "ipc_slow_clients_total", "",
     "Connections closed because the client did not send or read in time."},
};

// Counted by all processes that use the store; each adds its counters with its next write.
constexpr CounterRow kStoreCounters[] = {
    // schema: counters of Stats. Written by src/schema/generate.py
    // clang-format off
    {"misses_new", "misses_total", R"(reason="new")", "Misses of all processes that use the store, by reason."},
    {"misses_header_changed", "misses_total", R"(reason="header_changed")", ""},
    {"misses_header_appeared", "misses_total", R"(reason="header_appeared")", ""},
    {"misses_header_vanished", "misses_total", R"(reason="header_vanished")", ""},
    {"misses_damaged", "misses_total", R"(reason="damaged")", ""},
    {"misses_revoked", "misses_total", R"(reason="revoked")", ""},
    {"misses_evicted", "misses_total", R"(reason="evicted")", ""},
    {"compiles", "client_compiles_total", "", "Compiles by all processes that use the store."},
    {"failed", "client_compiles_failed_total", "", "Failed compiles of all processes that use the store."},
    {"evicted", "store_evicted_entries_total", "", "Evicted entries."},
    {"singleflight_waits", "client_singleflight_waits_total", "", "Waits for another process that compiles the same request."},
    // clang-format on
    // end of schema
    {"evicted_bytes", "store_evicted_bytes_total", "", "Cubin bytes of evicted entries."},
    {"blob_hits", "store_blob_lookups_total", R"(result="hit")",
     "Lookups of blobs, by all processes that use the store."},
    {"blob_misses", "store_blob_lookups_total", R"(result="miss")", ""},
    {"blob_waits", "store_blob_singleflight_waits_total", "",
     "Lookups of blobs that waited for another caller, which produced it."},
    {"blobs_stored", "store_stored_blobs_total", "", "Blobs that were stored."},
    {"blobs_evicted", "store_evicted_blobs_total", "", "Evicted blobs."},
    {"blob_bytes_evicted", "store_evicted_blob_bytes_total", "", "Bytes of evicted blobs."},
    {"corrupt_entry", "store_corrupt_entries_total", R"(kind="entry")",
     "Damaged entries, requests (set) and blobs that were removed at a lookup, and damaged rows "
     "that "
     "verify found."},
    {"corrupt_set", "store_corrupt_entries_total", R"(kind="set")", ""},
    {"corrupt_verify", "store_corrupt_entries_total", R"(kind="verify")", ""},
    {"corrupt_blob", "store_corrupt_entries_total", R"(kind="blob")", ""},
};

template <std::size_t count, class Find>
void add_rows(Exposition& out, const CounterRow (&rows)[count], const Find& find) {
  for (const CounterRow& row : rows) {
    if (const std::optional<std::uint64_t> value = find(row.counter)) {
      out.counter(row.metric, row.help, *value, row.labels);
    }
  }
}

void add_daemon(Exposition& out, const wire::DaemonSnapshot& state) {
  out.gauge("draining", "1 while the daemon shuts down.", state.draining ? 1 : 0);
  out.gauge("compiles_in_flight", "Running compiles.", state.counter("compiles_running"));
  out.gauge("compile_queue_length", "Queued compiles.", state.counter("compiles_queued"));
  out.gauge("singleflight_waiters", "Clients that wait for compiles.",
            state.counter("compile_waiters"));
  out.gauge("quarantined_requests",
            "Requests that are refused for a while, because their compile crashed or hung.",
            state.counter("quarantined"));
  out.gauge("ipc_connections", "Open client connections.", state.counter("connections"));
  const auto find = [&](std::string_view name) -> std::optional<std::uint64_t> {
    const auto at = std::find_if(state.counters.begin(), state.counters.end(),
                                 [&](const auto& counter) { return counter.first == name; });
    return at == state.counters.end() ? std::nullopt : std::optional(at->second);
  };
  add_rows(out, kDaemonCounters, find);
  constexpr std::string_view kProtocolError = "protocol_errors_";
  for (const auto& [name, value] : state.counters) {
    if (name.starts_with(kProtocolError)) {
      out.counter("ipc_protocol_errors_total",
                  "Connections closed for a violation of the protocol, by reason.", value,
                  label("reason", std::string_view(name).substr(kProtocolError.size())));
    }
  }
  const auto counter = [&](const std::string& name) { return state.counter(name); };
  out.times<LongTimes>("compile_duration_seconds",
                       "Duration of compiles that gave a cubin, waits for files included.", {},
                       "compile_times", counter);
  for (const char* op : {"obtain", "get_blob", "put_blob"}) {
    out.times<ShortTimes>("ipc_request_duration_seconds",
                          "Time from a client's request to the reply.", label("op", op),
                          fmt::format("requests_{}", op), counter);
  }
}

/// The store's counters by name; 0 for one that was never counted.
class StoreCounts {
 public:
  explicit StoreCounts(std::map<std::string, std::int64_t> all) : all_(std::move(all)) {}
  std::uint64_t operator()(const std::string& name) const {
    const auto at = all_.find(name);
    return at == all_.end() ? 0 : static_cast<std::uint64_t>(std::max<std::int64_t>(at->second, 0));
  }

 private:
  const std::map<std::string, std::int64_t> all_;
};

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

void add_runs(Exposition& out, std::string_view metric, std::string_view help,
              const MaintenanceRuns& runs, const std::string& trigger = {}) {
  const auto add = [&](std::string_view result, std::uint64_t count) {
    out.counter(metric, help, count, trigger + label("result", result));
  };
  add("ok", runs.done);
  add("busy", runs.blocked);
  add("error", runs.failed);
}

void add_maintenance(Exposition& out, SqliteStore& disk) {
  const MaintenanceStats stats = disk.maintenance_stats();
  constexpr std::string_view kGc = "gc_runs_total";
  constexpr std::string_view kGcHelp =
      "Checks of the store's size cap by this daemon, by trigger and result.";
  add_runs(out, kGc, kGcHelp, stats.gc_by_put, R"(trigger="put",)");
  add_runs(out, kGc, kGcHelp, stats.gc_by_timer, R"(trigger="timer",)");
  out.summary("gc_duration_seconds", "Their duration.",
              seconds(stats.gc_by_put.total_time + stats.gc_by_timer.total_time),
              stats.gc_by_put.all() + stats.gc_by_timer.all());
  if (stats.gc_last_success_s != 0) {
    out.gauge("gc_last_success_timestamp_seconds",
              "Time of the last successful check of the size cap, in seconds since 1970.",
              stats.gc_last_success_s);
  }
  add_runs(out, "store_checkpoints_total", "Merges of the write-ahead log by this daemon.",
           stats.checkpoints);
  out.summary("store_checkpoint_duration_seconds", "Their duration.",
              seconds(stats.checkpoints.total_time), stats.checkpoints.all());
  if (const auto oldest = disk.oldest_use_s()) {
    constexpr std::int64_t kNsPerSecond = 1'000'000'000;
    const std::int64_t now_s = Clock::system().now_ns() / kNsPerSecond;
    out.gauge("store_oldest_entry_age_seconds",
              "Time since the last use of the least recently used entry; 0 in an empty store.",
              std::max<std::int64_t>(0, now_s - oldest->value_or(now_s)));
  }
}

void add_store(Exposition& out, TieredStore& store, const StoreFacts& facts) {
  const bool bypassed = !store.bypass_reason().empty();
  out.gauge("store_bypassed", "1 while the store on disk cannot be used.", bypassed ? 1 : 0);
  if (bypassed) {
    return;
  }
  const DiskUse use = StoreAdmin(store).disk_use();
  out.gauge("store_entries", "Entries in the store.", facts.entries);
  out.gauge("store_blobs", "Blobs in the store.", facts.blobs);
  out.gauge("store_blobs_size_bytes", "Size of the blobs in the store.", facts.blob_bytes);
  out.gauge("store_size_bytes", "Size of the store's files.", facts.bytes);
  out.gauge("store_limit_bytes", "Size above which least recently used entries are evicted.",
            use.max_bytes, R"(type="soft")");
  out.gauge("store_wal_size_bytes", "Size of SQLite's write-ahead log.", use.wal_bytes);
  out.gauge("store_free_disk_bytes", "Free space of the store's file system.", use.free_disk_bytes);
  out.gauge("store_reserve_bytes", "Size of the reserve for eviction on a full disk.",
            use.reserve_bytes);
  out.counter("store_lock_timeouts_total",
              "Writes of this daemon that timed out waiting for other writers.", use.lock_timeouts);
  SqliteStore& disk = *store.disk();
  for (std::size_t i = 0; i < std::size(kRebuilds); ++i) {
    out.counter("store_rebuilds_total", "New generations started by this daemon, by reason.",
                disk.rebuilds(static_cast<Rebuild>(i)), label("reason", kRebuilds[i]));
  }
  std::map<std::string, std::uint64_t> waits;
  disk.lock_waits().each("lock_waits",
                         [&](const std::string& name, const std::atomic<std::uint64_t>& value) {
                           waits[name] = value.load(std::memory_order_relaxed);
                         });
  out.times<ShortTimes>("store_lock_wait_seconds",
                        "Time that writes of this daemon waited for other writers.", {},
                        "lock_waits", [&](const std::string& name) { return waits[name]; });
  add_maintenance(out, disk);
}

/// Counters that the processes using the store have added to it.
void add_store_counters(Exposition& out, const StoreCounts& count) {
  std::uint64_t misses = 0;
  each_reason([&](const StatsField& reason) { misses += count(reason.name); });
  constexpr std::string_view kLookups = "lookups_total";
  constexpr std::string_view kLookupsHelp = "Lookups by all processes that use the store.";
  out.counter(kLookups, kLookupsHelp, count("hits"), R"(tier="all",result="hit")");
  out.counter(kLookups, kLookupsHelp, misses, R"(tier="all",result="miss")");
  add_rows(out, kStoreCounters,
           [&](std::string_view name) { return std::optional(count(std::string(name))); });
  for (const char* op : {"find", "get", "put"}) {
    for (const ErrorCode code : kStoreErrors) {
      out.counter("store_errors_total",
                  "Store errors of all processes that use the store; each was a miss, or an entry "
                  "not stored.",
                  count(fmt::format("store_errors_{}_{}", op, name_of(code))),
                  label("op", op) + "," + label("code", name_of(code)));
    }
  }
  out.counter("saved_seconds_total", "Compile time saved by hits.",
              static_cast<double>(count("saved_us")) / kUsPerSecond);
}

/// Measurements that processes have reported to this daemon, or added to its store.
void add_clients(Exposition& out, const StoreCounts& count) {
  for (const char* tier : kTierNames) {
    out.times<ShortTimes>("lookup_duration_seconds",
                          "Duration of lookups that hit, by tier; checks of the files included.",
                          label("tier", tier), fmt::format("look_up_{}", tier), count);
  }
  out.times<LongTimes>("client_preload_duration_seconds", "Duration of preloads.", {}, "preload",
                       count);
  for (const char* reason : kNotStored) {
    out.counter("uncacheable_total", "Compiles whose result was used but not stored, by reason.",
                count(fmt::format("not_stored_{}", reason)), label("reason", reason));
  }
  for (const char* reason : kFallbacks) {
    out.counter("client_fallbacks_total", "Local fallbacks, by reason.",
                count(fmt::format("fallbacks_{}", reason)), label("reason", reason));
  }
}

void add_traffic(Exposition& out, const std::vector<RemoteReport::Traffic>& all) {
  const auto labels_of = [](const RemoteReport::Traffic& traffic) {
    return label("backend", traffic.backend) + "," + label("op", traffic.op);
  };
  for (const RemoteReport::Traffic& traffic : all) {
    for (const auto& [result, count] : traffic.results) {
      out.counter("remote_requests_total", "Requests to remote stores, by result.", count,
                  labels_of(traffic) + "," + label("result", result));
    }
  }
  for (const RemoteReport::Traffic& traffic : all) {
    std::uint64_t total = 0;
    for (const auto& [result, count] : traffic.results) {
      total += count;
    }
    out.histogram("remote_request_duration_seconds", "Duration of requests to remote stores.",
                  traffic.buckets, traffic.seconds, total, labels_of(traffic));
  }
}

void add_remotes(Exposition& out, const RemoteReport& remotes) {
  if (remotes.servers.empty()) {
    return;
  }
  std::map<std::string, int> open_by_backend;
  for (const RemoteReport::Server& server : remotes.servers) {
    int& open = open_by_backend[server.backend];
    open = std::max(open, server.circuit_open ? 1 : 0);
  }
  for (const auto& [backend, open] : open_by_backend) {
    out.gauge("remote_breaker_open", "1 while a server's circuit breaker is open.", open,
              label("backend", backend));
  }
  for (const auto& [state, count] : remotes.breaker_transitions) {
    out.counter("remote_breaker_transitions_total",
                "Transitions of circuit breakers, by new state.", count, label("to", state));
  }
  out.counter("remote_lookups_total", "Lookups in the remote stores, by result.", remotes.hits,
              R"(result="hit")");
  out.counter("remote_lookups_total", "", remotes.misses, R"(result="miss")");
  out.counter("remote_lookups_total", "", remotes.skipped, R"(result="skipped")");
  add_traffic(out, remotes.traffic);
  for (const auto& [reason, count] : remotes.rejected) {
    out.counter("remote_rejected_total", "Objects that failed verification, by reason.", count,
                label("reason", reason));
  }
  out.counter("remote_waits_total", "Waits for another machine that compiles the same request.",
              remotes.waits);
  out.counter("remote_received_bytes_total", "Bytes received from remote stores.",
              remotes.received_bytes);
  out.counter("remote_sent_bytes_total", "Bytes sent to remote stores.", remotes.sent_bytes);
  out.counter("remote_uploads_total", "Entries uploaded.", remotes.stored);
  out.gauge("remote_upload_queue_length", "Entries that are queued or being uploaded.",
            remotes.queued);
  out.counter("remote_uploads_dropped_total", "Entries that were not uploaded.", remotes.dropped);
}

}  // namespace

std::string metrics_text(const wire::DaemonSnapshot& state, TieredStore& store,
                         const RemoteReport& remotes, std::string_view compiler) {
  Exposition out;
  const StoreFacts facts = StoreAdmin(store).facts();
  out.gauge("build_info", "Versions of the daemon and of what it uses.", 1,
            label("version", version()) + "," + label("sqlite", facts.sqlite_version) + "," +
                label("nvrtc", compiler.substr(std::min(compiler.size(), kNvrtc.size()))) + "," +
                label("protocol", std::to_string(wire::kDaemonProtocol)));
  add_daemon(out, state);
  add_store(out, store, facts);
  if (auto counters = store.counters()) {
    const StoreCounts counts(*std::move(counters));
    if (store.bypass_reason().empty()) {
      add_store_counters(out, counts);
    }
    add_clients(out, counts);
  }
  add_remotes(out, remotes);
  add_process(out, state);
  return out.take();
}

}  // namespace cukiln::ops
