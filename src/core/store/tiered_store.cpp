// SPDX-License-Identifier: Apache-2.0
#include "core/store/tiered_store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

void add_new(std::vector<RecordedSet>& sets, std::vector<RecordedSet> more) {
  for (RecordedSet& one : more) {
    const bool known = std::any_of(sets.begin(), sets.end(),
                                   [&](const RecordedSet& set) { return set.key == one.key; });
    if (!known) {
      sets.push_back(std::move(one));
    }
  }
}

/// What a key leads to, for commands and other processes: they get no failure.
Lookup without_failure(Lookup found) {
  if (found && *found && (*found)->is_failure) {
    return std::optional<StoreEntry>();
  }
  return found;
}

}  // namespace

TieredStore::TieredStore(Options options)
    : options_(std::move(options)),
      revoked_keys_(options_.store.revoked_keys),
      key_scopes_(options_.store.scoped_keys),
      log_(options_.store.log),
      events_(options_.store.events),
      memory_(options_.memory_bytes, *options_.disk.clock) {}

Result<std::unique_ptr<TieredStore>> TieredStore::open(Options options) {
  const std::string& directory = options.store.directory;
  if (!options.store.memory_only && (directory.empty() || directory.front() != '/')) {
    return make_error(ErrorCode::invalid_argument,
                      "the store's directory is \"{}\"; expected an absolute path", directory);
  }
  const auto began = std::chrono::steady_clock::now();
  std::unique_ptr<TieredStore> self(new TieredStore(std::move(options)));
  self->options_.disk.events = self->events_ ? &self->events_ : nullptr;
  self->disks_.open();
  self->opening_ = {began, std::chrono::steady_clock::now() - began};
  return self;
}

bool TieredStore::is_disk_at(std::uint64_t device, std::uint64_t inode) const noexcept {
  struct stat status {};
  return disk() != nullptr && ::stat(disk()->directory().root().c_str(), &status) == 0 &&
         status.st_ino == inode && status.st_dev == device;
}

Lookup TieredStore::search_tiers(const std::function<Lookup(ObjectTier&)>& look_up,
                                 Purpose purpose) {
  CUKILN_TRY(std::optional<StoreEntry> found, look_up(memory_));
  if (found) {
    found->found_in = Tier::memory;
    if (disk() != nullptr && purpose == Purpose::use) {
      disk()->touch(found->key);
    }
  } else {
    found = disks_.search(look_up, [&](StoreEntry& entry, Tier tier) {
      entry.found_in = tier;
      if (purpose == Purpose::use) {
        cache_in_memory(entry);
      }
      return true;
    });
  }
  if (purpose == Purpose::use) {
    counters_.add(found ? StoreEvent::hit : StoreEvent::miss);
  }
  return found;
}

std::optional<StoreBlob> TieredStore::search_disks(const BlobName& name) {
  return disks_.search([&](SqliteStore& store) { return store.get(name); },
                       [&](const StoreBlob& blob, Tier) {
                         const bool is_usable = may_use(blob.signer);
                         if (!is_usable) {
                           log_.info("the blob {} of kind {} is not used: a key that signed it {}",
                                     name.id.hex().substr(0, 12), name.kind,
                                     revoked_keys_.signed_any_of(blob.signer)
                                         ? "was revoked"
                                         : "signs some modules only");
                         }
                         return is_usable;
                       });
}

std::optional<StoreBlob> TieredStore::search(const BlobName& name) {
  auto found = search_disks(name);
  if (found || daemon_ == nullptr) {
    return found;
  }
  auto in_daemon = daemon_->get(name);
  if (!in_daemon) {
    log_.debug("cukilnd was not asked for a blob of kind {}: {}", name.kind,
               in_daemon.error().message());
    return std::nullopt;
  }
  if (*in_daemon) {
    count("blob_daemon_hits");
  }
  return *std::move(in_daemon);
}

BlobLookup TieredStore::get(const BlobName& name) {
  auto found = search(name);
  count(found ? "blob_hits" : "blob_misses");
  return found;
}

bool TieredStore::contains(const BlobName& name) {
  return disks_
      .search([&](SqliteStore& store) { return store.signer_of(name); },
              [&](const std::string& signers, Tier) { return may_use(signers); })
      .has_value();
}

Lookup TieredStore::find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                         Purpose purpose) {
  auto found = search_tiers(
      [&](ObjectTier& tier) { return tier.find(request, request_canonical, check, purpose); },
      purpose);
  if (found && *found && (*found)->is_failure && purpose == Purpose::use) {
    count("failure_hits");
  }
  return found;
}

Lookup TieredStore::get(const CacheKey& key) {
  return without_failure(
      search_tiers([&](ObjectTier& tier) { return tier.get(key); }, Purpose::use));
}

Result<SetTree> TieredStore::find_sets(const RequestDigest& request, ByteView request_canonical) {
  const auto sets_of = [&](ObjectTier& tier) { return tier.find_sets(request, request_canonical); };
  CUKILN_TRY(SetTree tree, sets_of(memory_));
  disks_.for_each("find", sets_of, [&](SetTree& more, Tier) {
    if (more.size() > tree.size()) {
      tree = std::move(more);  // memory has a part of the sets that the disk has
    }
    return false;
  });
  return tree;
}

Result<std::vector<RecordedSet>> TieredStore::list_sets(const RequestDigest& request,
                                                        ByteView request_canonical) {
  const auto sets_of = [&](ObjectTier& tier) { return tier.list_sets(request, request_canonical); };
  CUKILN_TRY(std::vector<RecordedSet> sets, sets_of(memory_));
  disks_.for_each("find", sets_of, [&](std::vector<RecordedSet>& more, Tier) {
    add_new(sets, std::move(more));
    return false;
  });
  return sets;
}

template <class Id>
auto TieredStore::peek_tiers(const Id& id) -> decltype(std::declval<ObjectTier&>().peek(id)) {
  CUKILN_TRY(auto found, memory_.peek(id));
  for (SqliteStore* tier : {disk(), system()}) {
    if (!found && tier != nullptr) {
      CUKILN_TRY(found, tier->peek(id));
    }
  }
  return found;
}

Lookup TieredStore::peek(const CacheKey& key) { return without_failure(peek_tiers(key)); }
BlobLookup TieredStore::peek(const BlobId& id) { return peek_tiers(id); }

Result<PutOutcome> TieredStore::put(const StoreEntry& entry) {
  CUKILN_TRY(const PutOutcome in_memory, memory_.put(entry));
  auto outcome = disks_.put(entry);
  if (!outcome) {
    disks_.warn_not_stored(entry, outcome.error());
  } else if (disk() == nullptr && in_memory == PutOutcome::too_large) {
    return in_memory;
  } else {
    counters_.add(StoreEvent::stored, *outcome == PutOutcome::stored ? 1 : 0);
  }
  return outcome;
}

Result<PutOutcome> TieredStore::put(const StoreBlob& blob) {
  CUKILN_CHECK(BlobName::make(blob.kind, blob.key));
  if (blob.bytes.size() > kMaxBlobBytes) {
    return make_error(ErrorCode::invalid_argument,
                      "a blob of kind {} has {} bytes; at most {} are stored", blob.kind,
                      blob.bytes.size(), kMaxBlobBytes);
  }
  Result<PutOutcome> in_daemon = PutOutcome::not_stored;
  if (daemon_ != nullptr && blob.signer.empty()) {  // it would take an imported one for its own
    in_daemon = daemon_->put(blob);
  }
  if (!in_daemon) {
    log_.debug("cukilnd did not store a blob of kind {}: {}", blob.kind,
               in_daemon.error().message());
  } else if (*in_daemon == PutOutcome::already_there) {
    return PutOutcome::stored;
  }
  auto stored = disks_.put(blob);
  if (in_daemon && *in_daemon == PutOutcome::stored) {
    return in_daemon;
  }
  if (stored && *stored == PutOutcome::not_stored) {
    CUKILN_CHECK(need_disk());
  }
  return stored;
}

Result<PutOutcome> TieredStore::add(const StoreBlob& blob) {
  SqliteStore* const disk = disks_.store_for_put();
  if (disk != nullptr && disk->read_only()) {
    return PutOutcome::not_stored;
  }
  if (disk != nullptr) {
    const auto there = disk->peek(BlobName::id_of(blob.kind, blob.key));  // replaces a damaged one
    if (there && *there && may_use((*there)->signer)) {
      return PutOutcome::already_there;
    }
  }
  return put(blob);
}

Result<bool> TieredStore::remove(const ObjectName& name) {
  CUKILN_TRY(const bool in_memory, memory_.remove(name));
  if (disk() == nullptr) {
    return in_memory;
  }
  CUKILN_TRY(const bool on_disk, disk()->remove(name));
  return in_memory || on_disk;
}

std::uint64_t TieredStore::peak_bytes(const RequestDigest& request) {
  return disk() != nullptr ? disk()->peak_bytes(request) : 0;
}

Result<std::vector<EntrySummary>> TieredStore::list() {
  ObjectTier& first = disk() != nullptr ? static_cast<ObjectTier&>(*disk()) : memory_;
  return disks_.list(first, &EntrySummary::key, [](ObjectTier& tier) { return tier.list(); });
}

Result<std::vector<BlobSummary>> TieredStore::list_blobs(ByteView kind) {
  ObjectTier& first = disk() != nullptr ? static_cast<ObjectTier&>(*disk()) : memory_;
  return disks_.list(first, &BlobSummary::id,
                     [&](ObjectTier& tier) { return tier.list_blobs(kind); });
}

StoreStats TieredStore::stats() {
  const StoreStats user = disk() != nullptr ? disk()->stats() : memory_.stats();
  StoreStats stats;
  stats.entries = user.entries;
  stats.bytes = user.bytes;
  stats.hits = counters_[StoreEvent::hit];
  stats.misses = counters_[StoreEvent::miss];
  stats.stored = counters_[StoreEvent::stored];
  stats.evicted = user.evicted;
  stats.corrupt = user.corrupt + (system() != nullptr ? system()->stats().corrupt : 0);
  stats.errors = counters_[StoreEvent::error];
  return stats;
}

Result<std::string> TieredStore::source_text(const CacheKey& key) {
  auto text = memory_.source_text(key);
  for (SqliteStore* tier : {disk(), system()}) {
    if (tier == nullptr || (text && !text->empty())) {
      continue;
    }
    auto below = tier->source_text(key);
    // Damage in one tier is reported unless a lower one has the text.
    if (below || text || text.error().code() != ErrorCode::corrupt) {
      text = std::move(below);
    }
  }
  return text;
}

std::string TieredStore::lock_folder() const {
  return disk() == nullptr ? std::string() : disk()->lock_folder();
}

std::string TieredStore::headers_folder() const {
  return disk() == nullptr ? std::string() : disk()->directory().path("headers");
}

Result<std::uint64_t> TieredStore::remove_all() {
  CUKILN_TRY(SqliteStore* const disk_store, need_disk());
  memory_.remove_all();
  return disk_store->remove_all();
}

Result<void> TieredStore::flush() const {
  return disk() == nullptr || disk()->read_only() ? Result<void>()
                                                  : disk()->flush(options_.disk.write_wait);
}

const std::string& TieredStore::directory() const noexcept {
  return disk() != nullptr ? disk()->directory().root() : options_.store.directory;
}

std::string TieredStore::file_system() const {
  const long type = options_.disk.facts->file_system_type(directory());
  const char* network = network_file_system_name(type);
  return network != nullptr ? network : fmt::format("{:#x}", type);
}

}  // namespace cukiln
