// SPDX-License-Identifier: Apache-2.0
#include "core/store/store_admin.hpp"

#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <utility>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln {

namespace {

constexpr int kWalResetFixVersion = 3051003;

}  // namespace

StoreAdmin::StoreAdmin(Store& store) : tiers_(TieredStore::of(store)) {}

Result<std::vector<EntrySummary>> StoreAdmin::list() { return tiers_.list(); }
Lookup StoreAdmin::peek(const CacheKey& key) { return tiers_.peek(key); }
Result<std::string> StoreAdmin::source_text(const CacheKey& key) { return tiers_.source_text(key); }
Result<PutOutcome> StoreAdmin::put(const StoreEntry& entry) { return tiers_.put(entry); }
Result<std::vector<BlobSummary>> StoreAdmin::list_blobs() { return tiers_.list_blobs({}); }
Result<bool> StoreAdmin::remove(const ObjectName& name) { return tiers_.remove(name); }
BlobLookup StoreAdmin::peek(const BlobId& id) { return tiers_.peek(id); }
Result<PutOutcome> StoreAdmin::put(const StoreBlob& blob) { return tiers_.add(blob); }

Result<std::uint64_t> StoreAdmin::remove_all() { return tiers_.remove_all(); }

Result<VerifyReport> StoreAdmin::verify(bool repair) {
  CUKILN_TRY(SqliteStore* const disk, tiers_.need_disk());
  return disk->verify(repair);
}

Result<GcReport> StoreAdmin::collect(const GcOptions& options) {
  CUKILN_TRY(SqliteStore* const disk, tiers_.need_disk());
  return disk->collect(options);
}

bool StoreAdmin::is_revoked(const std::string& signer) const {
  return tiers_.revoked_keys().signed_any_of(signer);
}

Result<std::uint64_t> StoreAdmin::remove_revoked() {
  return cukiln::remove_revoked(tiers_, tiers_.revoked_keys());
}

StoreStats StoreAdmin::stats() { return tiers_.stats(); }

Result<std::map<std::string, std::int64_t>> StoreAdmin::counters() { return tiers_.counters(); }

void StoreAdmin::count(std::string_view counter, std::int64_t delta) {
  tiers_.count(counter, delta);
}

bool StoreAdmin::read_only() const noexcept { return tiers_.read_only(); }

bool StoreAdmin::was_rebuilt() const noexcept {
  SqliteStore* const disk = tiers_.disk();
  return disk != nullptr && disk->rebuilds() != 0;
}

StoreFacts StoreAdmin::facts() {
  StoreFacts facts;
  facts.directory = tiers_.directory();
  facts.file_system = tiers_.file_system();
  facts.sqlite_version = sqlite3_libversion();
  facts.sqlite_has_wal_reset_fix = sqlite3_libversion_number() >= kWalResetFixVersion;
  if (SqliteStore* const disk = tiers_.disk()) {
    if (auto name = disk->session().generation_name()) {
      facts.generation = *std::move(name);
    }
    if (const auto version = disk->session().schema_version()) {
      facts.schema = *version;
    }
    const StoreStats now = disk->stats();
    facts.bytes = now.bytes;
    facts.entries = now.entries;
    facts.rebuilds = disk->rebuilds();
    if (const auto blobs = disk->blob_totals()) {
      facts.blobs = blobs->blobs;
      facts.blob_bytes = blobs->bytes;
    }
  }
  facts.system_problem = tiers_.system_problem();
  if (SqliteStore* const system = tiers_.system()) {
    facts.system_directory = system->directory().root();
    facts.system_entries = system->stats().entries;
  }
  return facts;
}

DiskUse StoreAdmin::disk_use() {
  DiskUse use;
  SqliteStore* const disk = tiers_.disk();
  if (disk == nullptr) {
    return use;
  }
  StoreSession& session = disk->session();
  use.max_bytes = session.limits().max_bytes();
  use.lock_timeouts = session.writer().timeouts();
  use.reserve_bytes = session.limits().reserve_bytes();
  if (const auto generation = session.generation_name()) {
    // By name: opening and closing a file of SQLite's would drop its locks.
    const std::string wal = join_path(disk->directory().path(*generation), "store.db-wal");
    struct stat status {};
    use.wal_bytes =
        ::stat(wal.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  }
  struct statvfs system {};
  if (::statvfs(disk->directory().root().c_str(), &system) == 0) {
    use.free_disk_bytes = static_cast<std::uint64_t>(system.f_bavail) * system.f_frsize;
  }
  return use;
}

}  // namespace cukiln
