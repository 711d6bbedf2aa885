// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/key/stat_cache.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/eviction.hpp"
#include "core/store/maintenance.hpp"
#include "core/store/object_writer.hpp"
#include "core/store/sqlite_inventory.hpp"
#include "core/store/sqlite_lookup.hpp"
#include "core/store/sqlite_maintenance.hpp"
#include "core/store/store_accounting.hpp"
#include "core/store/store_session.hpp"
#include "core/store/verification.hpp"

namespace cukiln {

/// Entries and blobs in an SQLite file that any number of processes share; cache/FORMAT.md
/// specifies it. A read takes SQLite's shared lock only. A write excludes the writes of all
/// processes, and fails at a deadline. A façade over parts with one duty each, which share the
/// session and the accounting.
class SqliteStore final : public ObjectTier {
 public:
  /// Errors: those of StoreSession::open. After each the caller continues without this tier.
  static Result<std::unique_ptr<SqliteStore>> open(const SqliteStoreOptions& options);
  ~SqliteStore() override;

  const char* tier_name() const noexcept override { return accounting_.tier_name(); }
  Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
              Purpose purpose) override {
    return lookup_.find(request, request_canonical, check, purpose);
  }
  Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical) override {
    return lookup_.find_sets(request, request_canonical);
  }
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request,
                                             ByteView /*request_canonical*/) override {
    return lookup_.list_sets(request);
  }
  Lookup get(const CacheKey& key) override { return lookup_.get(key); }
  BlobLookup get(const BlobName& name) override { return lookup_.get(name); }
  Lookup peek(const CacheKey& key) override { return lookup_.peek(key); }
  BlobLookup peek(const BlobId& id) override { return lookup_.peek(id); }
  Result<PutOutcome> put(const StoreEntry& entry) override { return writer_.put(entry); }
  Result<PutOutcome> put(const StoreBlob& blob) override { return writer_.put(blob); }
  Result<bool> remove(const ObjectName& name) override { return writer_.remove(name); }
  Result<std::vector<EntrySummary>> list() override { return inventory_.list(); }
  Result<std::vector<BlobSummary>> list_blobs(ByteView kind) override {
    return inventory_.list_blobs(kind);
  }
  StoreStats stats() override { return inventory_.stats(); }
  std::uint64_t peak_bytes(const RequestDigest& request) override {
    return inventory_.peak_bytes(request);
  }
  Result<std::string> source_text(const CacheKey& key) override {
    return inventory_.source_text(key);
  }

  /// Records a use of an entry that a tier above served, for the eviction order.
  void touch(const CacheKey& key) { accounting_.touch(ObjectName::of(key)); }

  /// Returns the signers of a blob; nothing if there is none. Does not count as a use.
  Result<std::optional<std::string>> signer_of(const BlobName& name) {
    return lookup_.signer_of(name);
  }
  Result<SqliteInventory::BlobTotals> blob_totals() { return inventory_.blob_totals(); }

  Result<std::uint64_t> remove_all() { return writer_.remove_all(); }
  Result<VerifyReport> verify(bool repair) { return verification_.verify(repair); }
  Result<GcReport> collect(const GcOptions& options) { return maintenance_.collect(options); }

  /// Returns the counters of all processes, with the pending counts of this one.
  Result<std::map<std::string, std::int64_t>> counters() { return inventory_.counters(); }
  void count(std::string_view counter, std::int64_t delta) {
    accounting_.pending().add_count(counter, delta);
  }

  std::optional<StatRecord> find_stat_record(const std::string& path) {
    return inventory_.find_stat_record(path);
  }
  void save_stat_records(std::vector<StatRecord> records) {
    accounting_.pending().add_stat_records(std::move(records));
  }

  /// Writes what is pending. Errors: io, timeout.
  Result<void> flush(std::chrono::milliseconds wait) { return accounting_.flush(wait); }
  /// Writes what is pending, evicts down to the cap and merges a long write-ahead log. Called now
  /// and then by the maintenance owner (SqliteStoreOptions); no other process evicts or merges.
  Result<void> maintain() { return maintenance_.maintain(); }
  MaintenanceStats maintenance_stats() const;
  /// Returns when the least recently used entry was used last; nothing if there is no entry.
  Result<std::optional<std::int64_t>> oldest_use_s() { return inventory_.oldest_use_s(); }

  /// Changes the cap of the live data while the store is open.
  void set_max_bytes(std::uint64_t bytes) noexcept { session_->limits().set_max_bytes(bytes); }
  /// How often this process started a new generation.
  std::uint64_t rebuilds(Rebuild why) const noexcept { return session_->rebuilds(why); }
  std::uint64_t rebuilds() const noexcept { return session_->rebuilds(); }
  /// How long the writes of this process waited for the writer lock.
  ShortTimes& lock_waits() noexcept { return session_->writer().waits(); }

  bool read_only() const noexcept { return session_->read_only(); }
  const StoreDirectory& directory() const noexcept { return session_->directory(); }
  /// The folder for lock files of compiles and of blobs; empty if it cannot be written.
  std::string lock_folder() const;
  /// For src/core/store and its tests only.
  StoreSession& session() noexcept { return *session_; }

 private:
  explicit SqliteStore(std::unique_ptr<StoreSession> session);

  std::unique_ptr<StoreSession> session_;
  StoreAccounting accounting_;
  MaintenanceLog log_;
  Eviction eviction_;
  SqliteLookup lookup_;
  ObjectWriter writer_;
  StoreMaintenance maintenance_;
  Verification verification_;
  SqliteInventory inventory_;
};

}  // namespace cukiln
