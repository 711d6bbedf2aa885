// SPDX-License-Identifier: Apache-2.0
#include "daemon/ops/metrics_text.hpp"

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

#include "base/clock.hpp"
#include "base/histogram.hpp"
#include "base/result.hpp"
#include "daemon/ops/exposition.hpp"
#include "daemon/ops/process_metrics.hpp"
#include "loader/not_stored.hpp"
#include "store/store_admin.hpp"
#include "wire/daemon_link.hpp"

#include <cukiln/version.hpp>

namespace cukiln::ops {

namespace {

constexpr std::string_view kNvrtc = "nvrtc ";

/// What a store's operations can end with.
constexpr ErrorCode kStoreErrors[] = {ErrorCode::io, ErrorCode::timeout, ErrorCode::corrupt,
                                      ErrorCode::incompatible};

/// Which of the daemon's or the store's counters is which sample. Rows of one metric are together;
/// the first has its help.
struct CounterRow {
  std::string_view counter, metric, labels, help;
};

constexpr CounterRow kDaemonCounters[] = {
    {"compiles_ok", "compiles_total", R"(result="ok")", "Compiles by this daemon, by their end."},
    {"compiles_failed", "compiles_total", R"(result="error")", ""},
    {"compiles_crashed", "compiles_total", R"(result="crash")", ""},
    {"compiles_timed_out", "compiles_total", R"(result="timeout")", ""},
    {"compiles_out_of_memory", "compiles_total", R"(result="oom")", ""},
    {"compiles_garbage", "compiles_total", R"(result="garbage")", ""},
    {"coalesced", "singleflight_coalesced_total", "", "Requests that joined another's compile."},
    {"superseded", "singleflight_superseded_total", "", "Requests that the store had meanwhile."},
    {"restarted", "compiles_restarted_total", "", "Compiles begun again: their owner had left."},
    {"orphans_finished", "compiles_orphaned_total", "", "Compiles that outlived their owner."},
    {"remembered_failures", "compiles_refused_total", "",
     "Compiles not tried, for the same one had just crashed."},
    {"questions", "compile_questions_total", "", "Files that clients were asked for."},
    {"compiles_ahead", "compiles_ahead_total", "", "Compiles begun because a file was saved."},
    {"watch_events", "watch_events_total", "", "Changes in folders that are about watched files."},
    {"watch_overflows", "watch_overflows_total", "",
     "Times the kernel dropped events, and all watched files were looked at."},
    {"connections_accepted", "ipc_connections_total", "", "Clients that were let in."},
    {"rejected_user", "ipc_connections_rejected_total", R"(reason="uid")",
     "Clients that were not let in."},
    {"rejected_limit", "ipc_connections_rejected_total", R"(reason="limit")", ""},
    {"rejected_version", "ipc_connections_rejected_total", R"(reason="version")", ""},
    {"rejected_draining", "ipc_connections_rejected_total", R"(reason="draining")", ""},
    {"requests_sets_ok", "ipc_requests_total", R"(op="sets",code="ok")",
     "Requests of clients, by how they were answered."},
    {"requests_sets_error", "ipc_requests_total", R"(op="sets",code="error")", ""},
    {"requests_get_ok", "ipc_requests_total", R"(op="get",code="ok")", ""},
    {"requests_get_miss", "ipc_requests_total", R"(op="get",code="miss")", ""},
    {"requests_get_error", "ipc_requests_total", R"(op="get",code="error")", ""},
    {"requests_compile_ok", "ipc_requests_total", R"(op="compile",code="ok")", ""},
    {"requests_compile_error", "ipc_requests_total", R"(op="compile",code="error")", ""},
    {"requests_compile_superseded", "ipc_requests_total", R"(op="compile",code="superseded")", ""},
    {"requests_compile_declined", "ipc_requests_total", R"(op="compile",code="declined")", ""},
    {"requests_compile_draining", "ipc_requests_total", R"(op="compile",code="draining")", ""},
    {"entries_given", "ipc_entries_given_total", "", "Cubins handed to clients."},
    {"declined_busy", "ipc_requests_declined_total", R"(reason="busy")",
     "Compiles that were left to the client."},
    {"declined_compiler", "ipc_requests_declined_total", R"(reason="compiler")", ""},
    {"declined_draining", "ipc_requests_declined_total", R"(reason="draining")", ""},
    {"slow_clients", "ipc_slow_clients_total", "",
     "Connections closed: they kept a frame or its answer waiting."},
};

// Of all processes that use the store, written by each with its next write.
constexpr CounterRow kStoreCounters[] = {
    {"misses_header_changed", "stale_total", R"(reason="header_changed")",
     "Misses of what had been compiled before, by what is new."},
    {"misses_header_appeared", "stale_total", R"(reason="header_appeared")", ""},
    {"misses_header_vanished", "stale_total", R"(reason="header_vanished")", ""},
    {"compiles", "client_compiles_total", "", "Compiles by all users of the store."},
    {"failed", "client_compiles_failed_total", "", "Compiles that ended in an error."},
    {"singleflight_waits", "client_singleflight_waits_total", "",
     "Waits for another process's compile of the same."},
    {"evicted", "store_evicted_entries_total", "", "Entries that made room for others."},
    {"evicted_bytes", "store_evicted_bytes_total", "", "Their cubins."},
    {"corrupt_entry", "store_corrupt_entries_total", R"(kind="entry")",
     "Damaged entries, found and removed: when they were wanted, their rest or their dependency "
     "set; or by verify."},
    {"corrupt_set", "store_corrupt_entries_total", R"(kind="set")", ""},
    {"corrupt_verify", "store_corrupt_entries_total", R"(kind="verify")", ""},
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
  const auto running =
      std::count_if(state.jobs.begin(), state.jobs.end(),
                    [](const wire::DaemonSnapshot::Job& job) { return job.running; });
  std::uint64_t waiters = 0;
  for (const wire::DaemonSnapshot::Job& job : state.jobs) {
    waiters += job.waiters;
  }
  out.gauge("draining", "1 when the daemon is about to end.", state.draining ? 1 : 0);
  out.gauge("compiles_in_flight", "Compiles that run now.", running);
  out.gauge("compile_queue_length", "Compiles that wait for their turn.",
            static_cast<std::int64_t>(state.jobs.size()) - running);
  out.gauge("singleflight_waiters", "Clients that wait for compiles.", waiters);
  out.gauge("quarantined_keys", "Requests that are not tried for a while: they crashed or hung.",
            state.counter("quarantined"));
  out.gauge("ipc_connections", "Clients that are connected.", state.counter("connections"));
  const auto find = [&](std::string_view name) -> std::optional<std::uint64_t> {
    const auto at = std::find_if(state.counters.begin(), state.counters.end(),
                                 [&](const auto& counter) { return counter.first == name; });
    return at == state.counters.end() ? std::nullopt : std::optional(at->second);
  };
  add_rows(out, kDaemonCounters, find);
  // By the words of the daemon's, which are a fixed few.
  constexpr std::string_view kMisuse = "protocol_errors_";
  for (const auto& [name, value] : state.counters) {
    if (name.starts_with(kMisuse)) {
      out.counter("ipc_protocol_errors_total", "Connections closed for what they sent.", value,
                  label("reason", std::string_view(name).substr(kMisuse.size())));
    }
  }
  const auto number = [&](const std::string& name) { return state.counter(name); };
  out.times<LongTimes>("compile_duration_seconds",
                       "Compiles that gave a cubin, waiting for files too.", {}, "compile_times",
                       number);
  for (const char* op : {"sets", "get", "compile"}) {
    out.times<ShortTimes>("ipc_request_duration_seconds",
                          "From a request of a client's to its answer.", label("op", op),
                          fmt::format("requests_{}", op), number);
  }
  if (const auto folders = find("watch_directories")) {  // else it watches nothing
    out.gauge("watch_directories", "Folders that inotify watches.", *folders);
    out.gauge("watch_limit_reached", "Folders and files that are not watched, for a limit.",
              state.counter("watch_limit_reached"));
  }
}

/// The store's counters, by name; 0: nobody counted that.
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
      "Times this daemon saw to the cap: for a put, or by its timer.";
  add_runs(out, kGc, kGcHelp, stats.gc_by_put, R"(trigger="put",)");
  add_runs(out, kGc, kGcHelp, stats.gc_by_timer, R"(trigger="timer",)");
  out.summary("gc_duration_seconds", "What these took.",
              seconds(stats.gc_by_put.total_time + stats.gc_by_timer.total_time),
              stats.gc_by_put.all() + stats.gc_by_timer.all());
  if (stats.gc_last_success_s != 0) {
    out.gauge("gc_last_success_timestamp_seconds", "Since 1970.", stats.gc_last_success_s);
  }
  add_runs(out, "store_checkpoints_total", "Merges of the write-ahead log by this daemon.",
           stats.checkpoints);
  out.summary("store_checkpoint_duration_seconds", "What these took.",
              seconds(stats.checkpoints.total_time), stats.checkpoints.all());
  if (const auto oldest = disk.oldest_use_s()) {
    constexpr std::int64_t kNsPerSecond = 1'000'000'000;
    const std::int64_t now_s = Clock::system().now_ns() / kNsPerSecond;
    out.gauge("store_oldest_entry_age_seconds",
              "Since the last use of the entry that would go first; 0: there is none.",
              std::max<std::int64_t>(0, now_s - oldest->value_or(now_s)));
  }
}

void add_store(Exposition& out, TieredStore& store, const StoreFacts& facts) {
  const bool bypassed = !store.bypass_reason().empty();
  out.gauge("store_bypassed", "1 when the disk is not used.", bypassed ? 1 : 0);
  if (bypassed) {
    return;
  }
  const DiskUse use = StoreAdmin(store).disk_use();
  out.gauge("store_entries", "Entries in the store.", facts.entries);
  out.gauge("store_size_bytes", "The store's files.", facts.bytes);
  out.gauge("store_limit_bytes", "Where the least recently used begins to go.", use.max_bytes,
            R"(type="soft")");
  out.gauge("store_wal_size_bytes", "SQLite's write-ahead log.", use.wal_bytes);
  out.gauge("store_free_disk_bytes", "What the file system has left.", use.free_disk_bytes);
  out.gauge("store_reserve_bytes", "Kept free to evict on a full disk.", use.reserve_bytes);
  out.counter("store_lock_timeouts_total", "Writes of this daemon given up: others kept writing.",
              use.lock_timeouts);
  SqliteStore& disk = *store.disk();
  for (std::size_t i = 0; i < std::size(kRebuilds); ++i) {
    out.counter("store_rebuilds_total", "Times this daemon began the store anew.",
                disk.rebuilds(static_cast<Rebuild>(i)), label("reason", kRebuilds[i]));
  }
  std::map<std::string, std::uint64_t> waits;
  disk.lock_waits().each("lock_waits",
                         [&](const std::string& name, const std::atomic<std::uint64_t>& value) {
                           waits[name] = value.load(std::memory_order_relaxed);
                         });
  out.times<ShortTimes>("store_lock_wait_seconds",
                        "How long writes of this daemon waited for others.", {}, "lock_waits",
                        [&](const std::string& name) { return waits[name]; });
  add_maintenance(out, disk);
}

/// What all users of the store have counted.
void add_users(Exposition& out, const StoreCounts& count) {
  constexpr std::string_view kLookups = "lookups_total";
  constexpr std::string_view kLookupsHelp = "Look-ups by all users of the store.";
  out.counter(kLookups, kLookupsHelp, count("hits"), R"(tier="all",result="hit")");
  out.counter(kLookups, kLookupsHelp,
              count("misses_new") + count("misses_header_changed") +
                  count("misses_header_appeared") + count("misses_header_vanished") +
                  count("misses_damaged") + count("misses_revoked") + count("misses_evicted"),
              R"(tier="all",result="miss")");
  add_rows(out, kStoreCounters,
           [&](std::string_view name) { return std::optional(count(std::string(name))); });
  for (const char* op : {"find", "get", "put"}) {
    for (const ErrorCode code : kStoreErrors) {
      out.counter("store_errors_total", "Store errors of all users, each survived.",
                  count(fmt::format("store_errors_{}_{}", op, name_of(code))),
                  label("op", op) + "," + label("code", name_of(code)));
    }
  }
  out.counter("saved_seconds_total", "Compiling that hits spared.",
              static_cast<double>(count("saved_us")) / kUsPerSecond);
}

/// What processes that use the store, or this daemon, have told of themselves.
void add_clients(Exposition& out, const StoreCounts& count) {
  for (const char* tier : kTierNames) {
    out.times<ShortTimes>("lookup_duration_seconds",
                          "Look-ups that hit, by where; the files are checked too.",
                          label("tier", tier), fmt::format("look_up_{}", tier), count);
  }
  out.times<LongTimes>("client_preload_duration_seconds", "Preloads, from call to return.", {},
                       "preload", count);
  for (const char* reason : kNotStored) {
    out.counter("uncacheable_total", "Compiles whose result was used and not kept.",
                count(fmt::format("not_stored_{}", reason)), label("reason", reason));
  }
  for (const char* reason : wire::kFallbacks) {
    out.counter("client_fallbacks_total", "Times that a client found this daemon wanting.",
                count(fmt::format("fallbacks_{}", reason)), label("reason", reason));
  }
}

void add_traffic(Exposition& out, const std::vector<RemoteReport::Traffic>& all) {
  const auto labels_of = [](const RemoteReport::Traffic& traffic) {
    return label("backend", traffic.backend) + "," + label("op", traffic.op);
  };
  for (const RemoteReport::Traffic& traffic : all) {
    for (const auto& [result, count] : traffic.ended) {
      out.counter("remote_requests_total", "Requests to the fleet's stores, by how they ended.",
                  count, labels_of(traffic) + "," + label("result", result));
    }
  }
  for (const RemoteReport::Traffic& traffic : all) {
    std::uint64_t count = 0;
    for (const auto& [result, ended] : traffic.ended) {
      count += ended;
    }
    out.histogram("remote_request_duration_seconds", "Requests to the fleet's stores.",
                  traffic.within, traffic.seconds, count, labels_of(traffic));
  }
}

/// By backend, for an address is no label.
void add_remotes(Exposition& out, const RemoteReport& remotes) {
  if (remotes.servers.empty()) {
    return;
  }
  std::map<std::string, int> left_alone;
  for (const RemoteReport::Server& server : remotes.servers) {
    int& any = left_alone[backend_of(server.where)];
    any = std::max(any, server.left_alone ? 1 : 0);
  }
  for (const auto& [backend, any] : left_alone) {
    out.gauge("remote_breaker_open", "1 when a remote is left alone after failures.", any,
              label("backend", backend));
  }
  for (const auto& [state, count] : remotes.breaker_turns) {
    out.counter("remote_breaker_transitions_total",
                "Times that a remote was left alone, or again not.", count, label("to", state));
  }
  out.counter("remote_lookups_total", "Look-ups in the fleet's stores.", remotes.hits,
              R"(result="hit")");
  out.counter("remote_lookups_total", "", remotes.misses, R"(result="miss")");
  out.counter("remote_lookups_total", "", remotes.skipped, R"(result="skipped")");
  add_traffic(out, remotes.traffic);
  for (const auto& [reason, count] : remotes.rejected) {
    out.counter("remote_rejected_total", "Objects that were not believed.", count,
                label("reason", reason));
  }
  out.counter("remote_waits_total", "Waits for another host's compile.", remotes.waits);
  out.counter("remote_received_bytes_total", "From the fleet's stores.", remotes.received_bytes);
  out.counter("remote_sent_bytes_total", "To the fleet's stores.", remotes.sent_bytes);
  out.counter("remote_uploads_total", "Entries that were sent.", remotes.stored);
  out.gauge("remote_upload_queue_length", "Entries that wait, or are on their way.",
            remotes.queued);
  out.counter("remote_uploads_dropped_total", "Entries that were not sent.", remotes.dropped);
}

}  // namespace

std::string backend_of(std::string_view where) {
  return where.starts_with("redis") ? "redis" : "http";
}

std::string metrics_text(const wire::DaemonSnapshot& state, TieredStore& store,
                         const RemoteReport& remotes, std::string_view compiler) {
  Exposition out;
  const StoreFacts facts = StoreAdmin(store).facts();
  out.gauge("build_info", "What runs.", 1,
            label("version", version()) + "," + label("sqlite", facts.sqlite_version) + "," +
                label("nvrtc", compiler.substr(std::min(compiler.size(), kNvrtc.size()))) + "," +
                label("protocol", std::to_string(wire::kDaemonProtocol)));
  add_daemon(out, state);
  add_store(out, store, facts);
  if (auto counters = store.counters()) {
    const StoreCounts counts(*std::move(counters));
    if (store.bypass_reason().empty()) {
      add_users(out, counts);
    }
    add_clients(out, counts);
  }
  add_remotes(out, remotes);
  add_process(out, state);
  return out.take();
}

}  // namespace cukiln::ops
