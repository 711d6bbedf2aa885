// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/module_index.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "core/base/serial.hpp"
#include "core/key/compile_request.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;

RemoteAnswer get(RemoteServer& server, const ObjectName& name, SteadyTime deadline) {
  return server.send(RemoteOp::get,
                     [&](RemoteEndpoint& endpoint) { return endpoint.get(name, deadline); });
}

/// Collects what the servers have of one request, and why they do not have more.
class Description {
 public:
  Description(ByteView canonical, std::string_view module, Target target, SetCheck& check,
              const RemoteStoreOptions& options)
      : canonical_(canonical), module_(module), target_(target), check_(check), options_(options) {}

  void add(RemoteServer& server) {
    const std::string where = server.health().where;
    asked_ += (asked_.empty() ? "" : ", ") + where;
    const bool has_sets = add_sets(server, where);
    const ObjectName name = ModuleIndex::name_of(module_, target_);
    const auto index = open(server, name, where, [&](ByteView bytes, Rejection& why) {
      return open_index(bytes, module_, target_, rules(server, name), why);
    });
    if (!index) {
      return;
    }
    if (const ModuleIndex::Row* const own = index->find(canonical_); own != nullptr && !has_sets) {
      note(fmt::format("uploaded to {} on {}, and evicted or removed since", where,
                       date_text(own->uploaded_s)));
    }
    for (const ModuleIndex::Row& row : index->rows) {
      record_.requests.push_back({row.key, row.canonical});
    }
  }

  RemoteRecord take() {
    if (record_.sets.empty() && record_.requests.empty()) {
      note(
          fmt::format("no machine has published {} for {} to {}, so what differs cannot be said; "
                      "export the entry where it was compiled, import it here, and compare: "
                      "cukiln explain KEY KEY",
                      module_, target_.name(), asked_));
    }
    return std::move(record_);
  }

 private:
  /// Keeps the first problem.
  void note(std::string problem) {
    if (record_.problem.empty()) {
      record_.problem = std::move(problem);
    }
  }

  OpenRules rules(const RemoteServer& server, const ObjectName& name) const {
    return {&options_.trusted, &name, server.takes_unsigned(), options_.clock, module_};
  }

  template <class Open>
  auto open(RemoteServer& server, const ObjectName& name, const std::string& where,
            const Open& opener)
      -> std::optional<typename decltype(opener(ByteView(),
                                                std::declval<Rejection&>()))::value_type> {
    const RemoteAnswer answer = get(server, name, SteadyClock::now() + options_.look_up_timeout);
    if (answer.status == RemoteStatus::absent) {
      return std::nullopt;
    }
    if (answer.status != RemoteStatus::ok) {
      note(fmt::format("{} cannot say it: {} ({})", where, answer.detail, name_of(answer.status)));
      return std::nullopt;
    }
    Rejection why = Rejection::none;
    auto opened = opener(answer.body, why);
    if (!opened) {
      note(fmt::format("{}: {}", where, opened.error().message()));
      return std::nullopt;
    }
    return *std::move(opened);
  }

  std::optional<FleetSets> parts(RemoteServer& server, const std::string& where) {
    bool absent = false;
    auto sets = server.sets(canonical_, SteadyClock::now() + options_.look_up_timeout, absent);
    if (!sets && !absent) {
      note(where + " cannot say it: the sets there cannot be read");
    }
    return sets;
  }

  std::optional<FleetSets> whole_sets(RemoteServer& server, const std::string& where) {
    const ObjectName name = ObjectName::of_sets(canonical_);
    return open(server, name, where, [&](ByteView bytes, Rejection& why) {
      return open_sets(bytes, canonical_, &options_.trusted, why, *options_.clock);
    });
  }

  /// True if the server has sets of the request.
  bool add_sets(RemoteServer& server, const std::string& where) {
    const auto sets = server.has_parts() ? parts(server, where) : whole_sets(server, where);
    if (!sets) {
      return false;
    }
    for (const RecordedSet& set : sets->recent) {
      record_.sets.push_back(set);
      if (record_.problem.empty() && check_.holds(set.dependencies, true)) {
        examine(server, where, set.key);
      }
    }
    return !sets->recent.empty();
  }

  /// Notes why an entry whose set holds is not used.
  void examine(RemoteServer& server, const std::string& where, const CacheKey& key) {
    const ObjectName name = ObjectName::of(key);
    const auto entry = open(server, name, where, [&](ByteView bytes, Rejection& why) {
      return open_entry(bytes, rules(server, name), why);
    });
    if (!entry) {
      note(fmt::format("recorded by {}, and evicted or removed since", where));
    } else if (!check_.holds(entry->dependencies, entry->may_trust_toolkit())) {
      note("of headers of CUDA that cannot be checked here");
    }
  }

  const ByteView canonical_;
  const std::string_view module_;
  const Target target_;
  SetCheck& check_;
  const RemoteStoreOptions& options_;
  std::string asked_;  // addresses
  RemoteRecord record_;
};

}  // namespace

ObjectName ModuleIndex::name_of(std::string_view module, Target target) {
  return {hash_of<Digest256<ObjectNameTag>>(
      {"cukiln index", module, ByteView("\0", 1), target.name()})};
}

void ModuleIndex::add(Row row) {
  std::erase_if(rows, [&](const Row& other) { return other.canonical == row.canonical; });
  rows.insert(rows.begin(), std::move(row));
  if (rows.size() > kMaxIndexedRequests) {
    rows.resize(kMaxIndexedRequests);
  }
}

const ModuleIndex::Row* ModuleIndex::find(ByteView canonical) const noexcept {
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [&](const Row& row) { return row.canonical == canonical; });
  return at != rows.end() ? &*at : nullptr;
}

std::string seal_index(std::string_view module, Target target, ModuleIndex index,
                       const SecretKey* key, std::int64_t now_s) {
  EnvelopeHead head;
  head.name = ModuleIndex::name_of(module, target);
  head.created_s = now_s;
  head.target = target.name();
  for (; !index.rows.empty(); index.rows.pop_back()) {
    SerialWriter out;
    out.u32(static_cast<std::uint32_t>(index.rows.size()));
    for (const ModuleIndex::Row& row : index.rows) {
      out.raw(view_of(row.key))
          .u64(static_cast<std::uint64_t>(row.uploaded_s))
          .bytes(row.canonical);
    }
    std::string sealed = seal_envelope(head, out.view(), key);
    if (sealed.size() <= kMaxIndexObjectBytes) {
      return sealed;
    }
  }
  return {};
}

Result<ModuleIndex> open_index(ByteView bytes, std::string_view module, Target target,
                               const OpenRules& rules, Rejection& why) {
  const auto refuse = [&](Rejection reason, const std::string& text) {
    why = reason;
    return Error(ErrorCode::corrupt, text);
  };
  if (bytes.size() > kMaxIndexObjectBytes) {
    return refuse(Rejection::oversize,
                  fmt::format("the index of a module has {} bytes, the limit is {}", bytes.size(),
                              kMaxIndexObjectBytes));
  }
  CUKILN_TRY(const OpenedEnvelope opened, open_envelope(bytes, rules, why));
  if (opened.head.name != ModuleIndex::name_of(module, target)) {
    return refuse(Rejection::wrong_name, "the object is not the index of this module and target");
  }
  CUKILN_CHECK(accept_signers({}, opened.signer, module, rules, why));
  ModuleIndex index;
  SerialReader in(opened.payload);
  const std::uint32_t count = in.u32();
  for (std::uint32_t i = 0; i < count && i < kMaxIndexedRequests && in.ok(); ++i) {
    ModuleIndex::Row row;
    const ByteView key = in.raw(sizeof row.key.bytes);
    row.uploaded_s = static_cast<std::int64_t>(in.u64());
    row.canonical = in.bytes();
    const auto fields = RequestFields::parse(row.canonical);
    if (!in.ok() || !fields || fields->target != target) {
      return refuse(Rejection::bad_payload, "the index of a module holds no request of its target");
    }
    row.key = digest_from<CacheKey>(key);
    index.rows.push_back(std::move(row));
  }
  if (!in.at_end()) {
    return refuse(Rejection::bad_payload, "the object does not hold the index of a module");
  }
  return index;
}

void index_request(RemoteServer& server, const StoreObject& object,
                   const RemoteStoreOptions& options, SteadyTime deadline) {
  const auto* const stored = std::get_if<StoreEntry>(&object);
  if (stored == nullptr) {
    return;
  }
  const StoreEntry& entry = *stored;
  const auto fields = RequestFields::parse(entry.request_canonical);
  if (!fields) {
    return;
  }
  const std::string& module = entry.labels.name;
  const ObjectName name = ModuleIndex::name_of(module, fields->target);
  const RemoteAnswer answer = server.send_upload(
      RemoteOp::get, [&](RemoteEndpoint& endpoint) { return endpoint.get(name, deadline); });
  if (answer.status != RemoteStatus::ok && answer.status != RemoteStatus::absent) {
    return;
  }
  ModuleIndex index;
  if (answer.status == RemoteStatus::ok) {
    Rejection why = Rejection::none;
    auto opened =
        open_index(answer.body, module, fields->target,
                   {&options.trusted, &name, server.takes_unsigned(), options.clock, module}, why);
    index = opened ? *std::move(opened) : std::move(index);
  }
  const std::int64_t now_s = options.clock->now_s();
  index.add({entry.key, now_s, entry.request_canonical});
  const std::string sealed =
      seal_index(module, fields->target, std::move(index), options.signing_key(), now_s);
  if (!sealed.empty()) {
    server.send_upload(RemoteOp::put, [&](RemoteEndpoint& endpoint) {
      return endpoint.put(name, sealed, deadline);
    });
  }
}

RemoteRecord describe_request(const std::vector<std::unique_ptr<RemoteServer>>& servers,
                              ByteView request_canonical, std::string_view module, SetCheck& check,
                              const RemoteStoreOptions& options) {
  const auto fields = RequestFields::parse(request_canonical);
  if (!fields) {
    return {};
  }
  Description description(request_canonical, module, fields->target, check, options);
  for (const auto& server : servers) {
    description.add(*server);
  }
  return description.take();
}

}  // namespace cukiln
