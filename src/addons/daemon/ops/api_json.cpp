// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/ops/api_json.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "addons/daemon/client/daemon_client.hpp"
#include "core/base/histogram.hpp"
#include "core/base/result.hpp"
#include "core/loader/entry_json.hpp"
#include "core/loader/entry_order.hpp"
#include "core/loader/stats_fields.hpp"
#include "core/store/store_admin.hpp"

#include <cukiln/version.hpp>

namespace cukiln::ops {

namespace {

using Json = EntryJson;

constexpr std::size_t kMaxListed = 500;
constexpr std::size_t kMaxLabelBytes = 300;
constexpr std::size_t kMaxTextBytes = 32'768;

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80; }

/// Truncates UTF-8 to `max_bytes` and then adds an ellipsis.
std::string truncated(std::string text, std::size_t max_bytes) {
  if (text.size() > max_bytes) {
    std::size_t end = max_bytes;
    while (end > 0 && is_continuation(text[end])) {
      --end;
    }
    text.resize(end);
    text += "…";
  }
  return text;
}

void truncate_all(Json& json, std::size_t max_bytes) {
  if (json.is_string()) {
    json = truncated(json.get<std::string>(), max_bytes);
  }
  if (json.is_structured()) {
    for (Json& element : json) {
      truncate_all(element, max_bytes);
    }
  }
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

/// `text` is the query's, in lower case.
bool matches(const EntrySummary& entry, const EntryQuery& query, const std::string& text) {
  const auto has = [&](const std::string& field) {
    return lower(field).find(text) != std::string::npos;
  };
  return (query.target.empty() || entry.labels.target == query.target) &&
         (query.origin.empty() || name_of(entry.origin) == query.origin) &&
         (text.empty() || has(entry.labels.name) || has(entry.labels.source) ||
          has(entry.labels.flags) || entry.key.hex().starts_with(text) ||
          std::any_of(entry.kernels.begin(), entry.kernels.end(),
                      [&](const KernelInfo& kernel) { return has(kernel.name); }));
}

struct Order {
  std::string_view name;
  entry_order::Before before;
};

constexpr Order kOrders[] = {{"used", entry_order::latest_used},
                             {"size", entry_order::largest},
                             {"time", entry_order::slowest_compiled},
                             {"hits", entry_order::most_hits},
                             {"name", entry_order::by_name}};

Json counters_json(const std::vector<std::pair<std::string, std::uint64_t>>& counters) {
  Json json = Json::object();
  for (const auto& [name, value] : counters) {
    json[name] = value;
  }
  return json;
}

Json job_json(const wire::DaemonSnapshot::Job& job) {
  return Json{{"name", truncated(job.name, kMaxLabelBytes)},
              {"target", truncated(job.target, kMaxLabelBytes)},
              {"request", job.request.hex()},
              {"owner_process", job.owner_process},
              {"elapsed_ms", job.elapsed_ms},
              {"waiters", job.waiters},
              {"running", job.running},
              {"orphaned", job.orphaned}};
}

Json remotes_json(const RemoteReport& remotes) {
  Json servers = Json::array();
  for (const RemoteReport::Server& server : remotes.servers) {
    servers.push_back(Json{{"where", truncated(server.where, kMaxLabelBytes)},
                           {"circuit_open", server.circuit_open}});
  }
  return Json{{"servers", std::move(servers)},
              {"hits", remotes.hits},
              {"misses", remotes.misses},
              {"waits", remotes.waits},
              {"skipped", remotes.skipped},
              {"stored", remotes.stored},
              {"dropped", remotes.dropped},
              {"received_bytes", remotes.received_bytes},
              {"sent_bytes", remotes.sent_bytes},
              {"requests", counters_json(remotes.requests)},
              {"rejected", counters_json(remotes.rejected)}};
}

}  // namespace

namespace {

Json compiles_json(const wire::DaemonSnapshot& state) {
  Json jobs = Json::array();
  for (const wire::DaemonSnapshot::Job& job : state.jobs) {
    jobs.push_back(job_json(job));
  }
  return jobs;
}

/// Reads a counter of the store by its name.
using Count = std::function<std::int64_t(const std::string& name)>;

Json store_json(TieredStore& store, const Count& count) {
  const StoreFacts facts = StoreAdmin(store).facts();
  const DiskUse use = StoreAdmin(store).disk_use();
  return Json{{"directory", facts.directory},
              {"generation", facts.generation},
              {"entries", facts.entries},
              {"bytes", facts.bytes},
              {"blobs", facts.blobs},
              {"blob_bytes", facts.blob_bytes},
              {"max_bytes", use.max_bytes},
              {"wal_bytes", use.wal_bytes},
              {"free_disk_bytes", use.free_disk_bytes},
              {"bypassed", store.bypass_reason()},
              {"rebuilds", facts.rebuilds},
              {"evicted", count("evicted")},
              {"damaged", count("corrupt")},
              {"stored", count("stored")},
              {"errors", count("store_errors")}};
}

Json lookups_json(const Count& count) {
  Json misses_by_reason = Json::object();
  std::int64_t misses = 0;
  each_reason([&](const StatsField& reason) {
    misses_by_reason[reason.reason] = count(reason.name);
    misses += count(reason.name);
  });
  Json tiers = Json::object();
  for (const char* tier : kTierNames) {
    const auto times = ShortTimes::summary(
        fmt::format("look_up_{}", tier),
        [&](const std::string& name) { return static_cast<std::uint64_t>(count(name)); });
    tiers[tier] = {{"hits", times.count}, {"median_us", times.median_us}};
  }
  return Json{{"hits", count("hits")},
              {"misses", misses},
              {"misses_by_reason", misses_by_reason},
              {"by_tier", tiers},
              {"waits", count("singleflight_waits")},
              {"compiles", count("compiles")},
              {"failed", count("failed")},
              {"saved_ms", count("saved_us") / 1000}};
}

Json fallbacks_json(const Count& count) {
  Json fallbacks = Json::object();
  for (const char* reason : kFallbacks) {
    fallbacks[reason] = count(fmt::format("fallbacks_{}", reason));
  }
  return fallbacks;
}

}  // namespace

std::string status_json(const wire::DaemonSnapshot& state, TieredStore& store,
                        const RemoteReport& remotes) {
  const auto counters = store.counters();
  const Count count = [&](const std::string& name) -> std::int64_t {
    if (!counters) {
      return 0;
    }
    const auto at = counters->find(name);
    return at == counters->end() ? 0 : std::max<std::int64_t>(at->second, 0);
  };
  return dump(
      Json{{"version", version()},
           {"process", state.process},
           {"build", state.build},
           {"socket", state.socket},
           {"draining", state.draining},
           {"uptime_ms", state.uptime_ms},
           {"compiles", compiles_json(state)},
           {"compiles_total", state.counter("compiles_running") + state.counter("compiles_queued")},
           {"counters", counters_json(state.counters)},
           {"store", store_json(store, count)},
           {"lookups", lookups_json(count)},
           {"fallbacks", fallbacks_json(count)},
           {"remotes", remotes_json(remotes)}});
}

Result<std::string> entries_json(TieredStore& store, const EntryQuery& query) {
  const auto* const order =
      std::find_if(std::begin(kOrders), std::end(kOrders), [&](const Order& candidate) {
        return candidate.name == (query.sort.empty() ? "used" : query.sort);
      });
  if (order == std::end(kOrders)) {
    return make_error(ErrorCode::invalid_argument,
                      "invalid sort \"{}\": expected used, size, time, hits or name",
                      truncated(query.sort, kMaxLabelBytes));
  }
  CUKILN_TRY(std::vector<EntrySummary> entries, store.list());
  const std::size_t all = entries.size();
  std::set<std::string> targets;
  for (const EntrySummary& entry : entries) {
    targets.insert(truncated(entry.labels.target, kMaxLabelBytes));
  }
  const std::string text = lower(query.text);
  std::erase_if(entries, [&](const EntrySummary& entry) { return !matches(entry, query, text); });
  std::stable_sort(entries.begin(), entries.end(), order->before);
  std::uint64_t bytes = 0;
  for (const EntrySummary& entry : entries) {
    bytes += entry.cubin_bytes;
  }
  Json list = Json::array();
  const std::size_t begin = std::min(query.offset, entries.size());
  const std::size_t end = begin + std::min({query.limit, kMaxListed, entries.size() - begin});
  for (std::size_t i = begin; i < end; ++i) {
    Json entry = json_of(entries[i]);
    entry["kernels"] = kernels_among(entries[i].kernels).size();
    truncate_all(entry, kMaxLabelBytes);
    list.push_back(std::move(entry));
  }
  return dump(Json{{"all", all},
                   {"matching", entries.size()},
                   {"matching_bytes", bytes},
                   {"offset", begin},
                   {"targets", targets},
                   {"entries", std::move(list)}});
}

Result<std::string> entry_json(TieredStore& store, const std::string& key) {
  CUKILN_TRY(const CacheKey digest, CacheKey::parse(key));
  CUKILN_TRY(const auto found, store.peek(digest));
  if (!found) {
    return make_error(ErrorCode::not_found, "no entry {} in the store", key);
  }
  const StoreEntry& entry = *found;
  CUKILN_TRY(const RequestFields fields, RequestFields::parse(entry.request_canonical));
  const EntrySummary summary{entry.key,
                             entry.labels,
                             entry.cubin.kernels,
                             entry.cubin.image.size(),
                             entry.dependencies.files(),
                             entry.compile_us,
                             entry.created_s,
                             entry.last_used_s,
                             entry.hits,
                             entry.origin,
                             entry.signer};
  Json json = json_of(summary, entry, fields);
  truncate_all(json, kMaxTextBytes);
  return dump(json);
}

}  // namespace cukiln::ops
