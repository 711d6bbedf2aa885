// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>

#include "core/base/result.hpp"
#include "core/compile/time_use.hpp"
#include "core/loader/explain_miss.hpp"
#include "core/loader/loader_impl.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxCandidates = 64;

std::string short_digest(const ContentHash& digest) { return digest.hex().substr(0, 12); }

/// Elements of `a` that `b` lacks, counting duplicates, in a's order.
std::vector<std::string> without(const std::vector<std::string>& a, std::vector<std::string> b) {
  std::vector<std::string> rest;
  for (const std::string& item : a) {
    if (const auto at = std::find(b.begin(), b.end(), item); at != b.end()) {
      b.erase(at);
    } else {
      rest.push_back(item);
    }
  }
  return rest;
}

void compare_lists(const char* field, const std::vector<std::string>& was,
                   const std::vector<std::string>& now, std::vector<Difference>& out) {
  const auto gone = without(was, now);
  const auto added = without(now, was);
  for (std::size_t i = 0; i < std::max(gone.size(), added.size()); ++i) {
    out.push_back({field, i < gone.size() ? gone[i] : "", i < added.size() ? added[i] : ""});
  }
  if (gone.empty() && added.empty() && was != now) {
    out.push_back({std::string(field) + " order", fmt::format("{}", fmt::join(was, " ")),
                   fmt::format("{}", fmt::join(now, " "))});
  }
}

std::string describe(const RequestFields::Source& source) {
  return fmt::format("{} {} ({} bytes)", source.path, short_digest(source.digest), source.size);
}

/// The arguments without the target, which is a field of its own.
std::vector<std::string> flags_of(const RequestFields& fields) {
  std::vector<std::string> flags = fields.options.arguments;
  std::erase_if(flags,
                [](const std::string& flag) { return flag.starts_with("--gpu-architecture="); });
  return flags;
}

std::vector<std::string> described(const std::vector<RequestFields::Source>& files) {
  std::vector<std::string> texts;
  for (const RequestFields::Source& file : files) {
    texts.push_back(describe(file));
  }
  return texts;
}

void compare_links(const std::optional<RequestFields::Link>& was,
                   const std::optional<RequestFields::Link>& now, std::vector<Difference>& out) {
  const auto text = [](const std::optional<RequestFields::Link>& link) {
    return link ? "nvjitlink " + link->linker.version + " " + short_digest(link->linker.content)
                : std::string();
  };
  if (text(was) != text(now)) {
    out.push_back({"linker", text(was), text(now)});
  }
  const RequestFields::Link none;
  const RequestFields::Link& a = was ? *was : none;
  const RequestFields::Link& b = now ? *now : none;
  compare_lists("link option", a.options, b.options, out);
  compare_lists("object", described(a.objects), described(b.objects), out);
}

std::vector<Difference> compare(const RequestFields& was, const RequestFields& now) {
  std::vector<Difference> out;
  if (was.target != now.target) {
    out.push_back({"target", was.target.name(), now.target.name()});
  }
  if (was.toolchain.version != now.toolchain.version ||
      was.toolchain.content != now.toolchain.content) {
    const auto text = [](const Toolchain& t) {
      return "nvrtc " + t.version + " " + short_digest(t.content);
    };
    out.push_back({"compiler", text(was.toolchain), text(now.toolchain)});
  }
  for (std::size_t i = 0; i < std::max(was.sources.size(), now.sources.size()); ++i) {
    const std::string a = i < was.sources.size() ? describe(was.sources[i]) : "";
    const std::string b = i < now.sources.size() ? describe(now.sources[i]) : "";
    if (a != b) {
      out.push_back({"source", a, b});
    }
  }
  if (was.output() != now.output()) {
    out.push_back({"output", name_of(was.output()), name_of(now.output())});
  }
  const NvrtcProgram none;
  const NvrtcProgram& a_program = was.program ? *was.program : none;
  const NvrtcProgram& b_program = now.program ? *now.program : none;
  if (a_program.working_folder != b_program.working_folder) {
    out.push_back({"working folder", a_program.working_folder, b_program.working_folder});
  }
  compare_lists("header given as text", described(was.headers), described(now.headers), out);
  compare_links(was.link, now.link, out);
  compare_lists("flag", flags_of(was), flags_of(now), out);
  compare_lists("name expression", was.options.name_expressions, now.options.name_expressions, out);
  return out;
}

std::vector<Difference> compare_sets(const DependencySet& was, const DependencySet& now) {
  std::vector<Difference> out;
  const auto file_in = [](const DependencySet& set, const std::string& path) {
    const Observation* const seen = set.find(path);
    return seen != nullptr && seen->kind == Observation::Kind::file ? seen : nullptr;
  };
  const auto text_of = [](const Observation& seen) {
    return seen.path + " " + short_digest(seen.hash);
  };
  for (const Observation& a : was.observations) {
    if (a.kind != Observation::Kind::file) {
      continue;
    }
    const Observation* const b = file_in(now, a.path);
    if (b == nullptr) {
      out.push_back({"header vanished", text_of(a), ""});
    } else if (b->hash != a.hash) {
      out.push_back({"header changed", text_of(a), text_of(*b)});
    }
  }
  for (const Observation& b : now.observations) {
    if (b.kind == Observation::Kind::file && file_in(was, b.path) == nullptr) {
      out.push_back({"header appeared", "", text_of(b)});
    }
  }
  if (out.empty() && was != now) {
    out.push_back({"header file identities changed", "", ""});
  }
  return out;
}

std::vector<Difference> describe(const std::vector<FileServer::Mismatch>& mismatches,
                                 const FileServer& files) {
  using What = FileServer::Mismatch::What;
  std::vector<Difference> out;
  for (const FileServer::Mismatch& m : mismatches) {
    const std::string path = files.real_path(m.path);
    switch (m.what) {
      case What::changed:
        out.push_back(
            {"header changed", path + " " + short_digest(m.was), path + " " + short_digest(m.now)});
        break;
      case What::appeared: out.push_back({"header appeared", "", path}); break;
      case What::vanished: out.push_back({"header vanished", path, ""}); break;
      case What::relinked: out.push_back({"header file identity changed", path, path}); break;
      case What::none: break;
    }
  }
  return out;
}

/// Compares a request with its own recorded sets, which differ in headers only: with the youngest
/// of those that differ least.
Explanation explain_by_sets(const std::vector<RecordedSet>& sets, FileServer& files) {
  Explanation out;
  std::optional<std::vector<FileServer::Mismatch>> fewest;
  for (const RecordedSet& set : sets) {
    auto mismatches = files.check_all(set.dependencies);
    if (!fewest || mismatches.size() < fewest->size()) {
      fewest = std::move(mismatches);
      out.nearest = set.key;
    }
  }
  out.differences = describe(*fewest, files);
  return out;
}

/// Keeps of the requests that are added the one with the fewest differences.
class NearestRequest {
 public:
  explicit NearestRequest(RequestFields now) : now_(std::move(now)) {}

  /// `is_related`: of the same module or file. Of the others one with a source of this text counts,
  /// as of a file that was renamed.
  void add(const CacheKey& key, ByteView canonical, bool is_related) {
    const auto was = RequestFields::parse(canonical);
    if (!was || !(is_related || have_one_text(was->sources, now_.sources))) {
      return;
    }
    if (auto differences = compare(*was, now_); differences.size() < fewest_) {
      fewest_ = differences.size();
      nearest.nearest = key;
      nearest.differences = std::move(differences);
    }
  }

  Explanation nearest;

 private:
  using Sources = std::vector<RequestFields::Source>;
  static bool have_one_text(const Sources& a, const Sources& b) {
    return std::any_of(a.begin(), a.end(), [&](const RequestFields::Source& one) {
      return std::any_of(b.begin(), b.end(), [&](const RequestFields::Source& other) {
        return one.digest == other.digest;
      });
    });
  }

  const RequestFields now_;
  std::size_t fewest_ = std::numeric_limits<std::size_t>::max();
};

/// Adds the entries of the same source if there are any, else those of the same module, else the
/// others; the youngest kMaxCandidates of them.
Result<void> add_entries(TieredStore& store, const ModuleRequest& request, NearestRequest& out) {
  CUKILN_TRY(std::vector<EntrySummary> entries, store.list());
  const auto rank = [&](const EntrySummary& entry) {
    return entry.labels.source == request.labels.source ? 0
           : entry.labels.name == request.name          ? 1
                                                        : 2;
  };
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const EntrySummary& a, const EntrySummary& b) {
                     return rank(a) != rank(b) ? rank(a) < rank(b) : a.created_s > b.created_s;
                   });
  if (entries.size() > kMaxCandidates) {
    entries.resize(kMaxCandidates);
  }
  int best_rank = std::numeric_limits<int>::max();
  for (const EntrySummary& summary : entries) {
    if (rank(summary) > best_rank) {
      break;
    }
    const Lookup entry = store.peek(summary.key);
    if (entry && *entry) {
      out.add(summary.key, (*entry)->request_canonical, rank(summary) < 2);
      best_rank = out.nearest.nearest ? rank(summary) : best_rank;
    }
  }
  return {};
}

RemoteRecord describe(RemoteTier& remote, const ModuleRequest& request, StatCache& stat_cache) {
  const auto files = request.files(&stat_cache);
  FileCheck check(*files);
  return remote.describe(request.canonical, request.name, check);
}

/// Compares a request with its nearest set or, without one, with the nearest other request. `store`
/// is null if its entries do not count, `record` if there is no remote store.
Result<Explanation> explain_by(const std::vector<RecordedSet>& sets, const RemoteRecord* record,
                               const ModuleRequest& request, TieredStore* store,
                               StatCache& stat_cache) {
  const auto files = request.files(&stat_cache);
  if (!sets.empty()) {
    return explain_by_sets(sets, *files);
  }
  CUKILN_TRY(RequestFields now, RequestFields::parse(request.canonical));
  NearestRequest others(std::move(now));
  for (const RemoteRecord::Request& other :
       record != nullptr ? record->requests : std::vector<RemoteRecord::Request>()) {
    others.add(other.key, other.canonical, true);
  }
  if (store != nullptr) {
    CUKILN_CHECK(add_entries(*store, request, others));
  }
  Explanation out = std::move(others.nearest);
  for (Difference& difference : out.differences) {  // as they are called on this machine
    difference.was = files->with_real_paths(difference.was);
    difference.now = files->with_real_paths(difference.now);
  }
  if (!out.nearest && record != nullptr) {
    out.differences.push_back({"not known", "", record->problem});
  }
  return out;
}

/// Says how an entry that was compiled here differs from what the fleet has. Nothing if it has the
/// entry.
Result<void> compare_with_fleet(RemoteTier& remote, const ModuleRequest& request,
                                StatCache& stat_cache, Explanation& hit) {
  const RemoteRecord record = describe(remote, request, stat_cache);
  if (std::any_of(record.sets.begin(), record.sets.end(),
                  [&](const RecordedSet& set) { return set.key == *hit.key; })) {
    return {};
  }
  CUKILN_TRY(Explanation other, explain_by(record.sets, &record, request, nullptr, stat_cache));
  if (other.differences.empty()) {
    other.differences.push_back({"entry", record.problem, "compiled here"});
  }
  hit.nearest = other.nearest;
  hit.differences = std::move(other.differences);
  return {};
}

}  // namespace

Result<Explanation> explain_miss(const ModuleRequest& request, const Miss& miss, TieredStore& tiers,
                                 StatCache& stat_cache, RemoteTier* remote) {
  if (const auto use = find_time_use(request.request, *request.files(&stat_cache))) {
    Explanation never_stored;
    never_stored.differences.push_back(
        {"never stored", "", fmt::format("uses {} ({})", use->macro, use->place)});
    return never_stored;
  }
  CUKILN_TRY(auto sets, tiers.list_sets(request.digest, request.canonical));
  std::string lost = miss.entry();
  RemoteRecord record;
  if (remote != nullptr) {
    record = describe(*remote, request, stat_cache);
    sets.insert(sets.end(), record.sets.begin(), record.sets.end());
    lost = miss.why == Miss::Why::not_stored ? record.problem : lost;
  }
  CUKILN_TRY(Explanation out,
             explain_by(sets, remote != nullptr ? &record : nullptr, request, &tiers, stat_cache));
  if (out.nearest && (out.differences.empty() || miss.why == Miss::Why::evicted)) {
    out.differences.insert(out.differences.begin(),
                           {"entry", lost, "compiled again by its next use"});
  }
  return out;
}

Result<Explanation> KernelLoader::explain(const ModuleSpec& spec, Target target) {
  return guarded([&]() -> Result<Explanation> {
    const EventDelivery delivery(impl_->tiers.events(), impl_->events);
    CUKILN_TRY(Impl::Resolved resolved, impl_->resolve(spec, target, Builder::Purpose::inspect));
    const ModuleRequest& request = resolved.request;
    std::optional<StoreEntry>& entry = resolved.found.entry;
    RemoteTier* const remote = impl_->builder->remote();
    const bool is_compiled_here = entry && entry->origin == Origin::compiled;
    if (!entry && remote != nullptr) {
      const auto files = request.files(&impl_->stat_cache);
      FileCheck check(*files);
      entry = remote->find(request.canonical, request.name, check, RemoteTier::Freshness::now);
    }
    Explanation explanation;
    if (entry) {
      explanation.hit = true;
      explanation.key = entry->key;
      if (is_compiled_here && remote != nullptr) {
        CUKILN_CHECK(compare_with_fleet(*remote, request, impl_->stat_cache, explanation));
      }
    } else {
      CUKILN_TRY(explanation, explain_miss(request, resolved.found.miss, impl_->tiers,
                                           impl_->stat_cache, remote));
    }
    explanation.target = request.request.target;
    return explanation;
  });
}

Result<Explanation> KernelLoader::explain(const CacheKey& was, const CacheKey& now) {
  return guarded([&]() -> Result<Explanation> {
    const EventDelivery delivery(impl_->tiers.events(), impl_->events);
    TieredStore& store = impl_->tiers;
    const auto entry_of = [&](const CacheKey& key) -> Result<StoreEntry> {
      CUKILN_TRY(auto entry, store.peek(key));
      if (!entry) {
        return make_error(ErrorCode::not_found, "no entry {} in the store", key.hex());
      }
      return *std::move(entry);
    };
    CUKILN_TRY(const StoreEntry a, entry_of(was));
    CUKILN_TRY(const StoreEntry b, entry_of(now));
    CUKILN_TRY(const RequestFields fields_a, RequestFields::parse(a.request_canonical));
    CUKILN_TRY(const RequestFields fields_b, RequestFields::parse(b.request_canonical));
    Explanation out;
    out.hit = was == now;
    out.key = now;
    out.nearest = was;
    out.target = fields_b.target;
    out.differences = compare(fields_a, fields_b);
    auto headers = compare_sets(a.dependencies, b.dependencies);
    out.differences.insert(out.differences.end(), headers.begin(), headers.end());
    return out;
  });
}

}  // namespace cukiln
