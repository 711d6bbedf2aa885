// SPDX-License-Identifier: Apache-2.0
#include "core/store/pending_writes.hpp"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/store/object_rows.hpp"
#include "core/store/set_records.hpp"

namespace cukiln {

namespace {

// A host with thousands of kernels must not rewrite thousands of rows at every start: beyond this
// many, only last uses that are old enough to matter to the eviction order are written.
constexpr std::size_t kAlwaysWritten = 256;
constexpr std::int64_t kOldUseS = 3600;

Result<void> apply_uses(SqliteHandle& db, const PendingWrites::Batch& batch) {
  const bool many = batch.uses.size() > kAlwaysWritten;
  for (const auto& [name, uses] : batch.uses) {
    // A sum of impossible hits would not be an integer, so they count as ?5.
    CUKILN_CHECK(db.query("UPDATE object SET hits=min(hits, ?5)+?1, "
                          "last_used_s=max(last_used_s, ?2) WHERE name=?3 AND last_used_s<=?4")
                     .number(uses.count)
                     .number(uses.last_s)
                     .blob(view_of(name))
                     .number(many ? uses.last_s - kOldUseS : INT64_MAX)
                     .number(kMaxHits)
                     .run());
  }
  return {};
}

template <class Digest>
void add_once(std::vector<Digest>& digests, const Digest& digest) {
  if (std::find(digests.begin(), digests.end(), digest) == digests.end()) {
    digests.push_back(digest);
  }
}

template <class Digest>
void append(std::vector<Digest>& digests, const std::vector<Digest>& more) {
  digests.insert(digests.end(), more.begin(), more.end());
}

Result<void> apply_stat_records(SqliteHandle& db, const PendingWrites::Batch& batch) {
  for (const auto& [path, record] : batch.stat_records) {
    CUKILN_CHECK(
        db.query("INSERT OR REPLACE INTO stat_cache(path, device, inode, size, mtime_ns, "
                 "ctime_ns, digest, note, recorded_ns, check64) VALUES(?,?,?,?,?,?,?,?,?,?)")
            .text(path)
            .number(static_cast<std::int64_t>(record.stamp.device))
            .number(static_cast<std::int64_t>(record.stamp.inode))
            .number(static_cast<std::int64_t>(record.stamp.size))
            .number(record.stamp.mtime_ns)
            .number(record.stamp.ctime_ns)
            .blob(view_of(record.digest))
            .text(record.note)
            .number(record.recorded_ns)
            .number(check_of(record))
            .run());
  }
  if (batch.stat_records.empty()) {
    return {};
  }
  CUKILN_TRY(const std::int64_t rows, db.number("SELECT count(*) FROM stat_cache"));
  const auto limit = static_cast<std::int64_t>(kMaxStatRecords);
  if (rows > limit) {
    CUKILN_CHECK(db.query("DELETE FROM stat_cache WHERE path IN "
                          "(SELECT path FROM stat_cache ORDER BY recorded_ns LIMIT ?)")
                     .number(rows - limit + limit / 10)
                     .run());
  }
  return {};
}

}  // namespace

std::int64_t check_of(const StatRecord& record) noexcept {
  const auto& [path, stamp, digest, note, recorded_ns] = record;
  const auto& [device, inode, size, mtime_ns, ctime_ns] = stamp;
  Checksummer sum;
  sum.add_sized(path).add(view_of(digest)).add_sized(note);
  for (const std::uint64_t number :
       {device, inode, size, static_cast<std::uint64_t>(mtime_ns),
        static_cast<std::uint64_t>(ctime_ns), static_cast<std::uint64_t>(recorded_ns)}) {
    sum.add_number(number);
  }
  std::int64_t check = 0;
  const Checksum whole = sum.finish();
  std::memcpy(&check, whole.bytes.data(), sizeof check);
  return check;
}

std::optional<StatRecord> stat_record_of(const Query& query) {
  const auto unsigned_at = [&](int column) {
    return static_cast<std::uint64_t>(query.column_number(column));
  };
  StatRecord record;
  record.path = query.column_bytes(0);
  record.stamp = {unsigned_at(1), unsigned_at(2), unsigned_at(3), query.column_number(4),
                  query.column_number(5)};
  record.digest = digest_from<ContentHash>(query.column_bytes(6));
  record.note = query.column_bytes(7);
  record.recorded_ns = query.column_number(8);
  const bool sound = query.column_bytes(6).size() == record.digest.bytes.size() &&
                     query.column_number(9) == check_of(record);
  return sound ? std::optional(std::move(record)) : std::nullopt;
}

void PendingWrites::drop_inherited() noexcept {
  if (const int process = ::getpid(); process != process_) {
    batch_ = {};
    process_ = process;
  }
}

void PendingWrites::add_use(const ObjectName& name, std::int64_t now_s) {
  const ForkSafeLock lock(mutex_);
  drop_inherited();
  Uses& uses = batch_.uses[name];
  ++uses.count;
  uses.last_s = std::max(uses.last_s, now_s);
}

void PendingWrites::add_count(std::string_view counter, std::int64_t delta) {
  const ForkSafeLock lock(mutex_);
  drop_inherited();
  const auto at = batch_.counters.find(counter);
  if (at != batch_.counters.end()) {
    at->second = sum_of_counts(at->second, delta);
  } else {
    batch_.counters.emplace(counter, std::min(delta, kMaxCount));
  }
}

void PendingWrites::add_stat_records(std::vector<StatRecord> records) {
  const ForkSafeLock lock(mutex_);
  drop_inherited();
  for (StatRecord& record : records) {
    std::string path = record.path;
    batch_.stat_records.insert_or_assign(std::move(path), std::move(record));
  }
}

void PendingWrites::add_damaged(const ObjectName& name) {
  const ForkSafeLock lock(mutex_);
  drop_inherited();
  add_once(batch_.damaged, name);
}

void PendingWrites::add_damaged(const RequestDigest& request) {
  const ForkSafeLock lock(mutex_);
  drop_inherited();
  add_once(batch_.damaged_requests, request);
}

std::optional<StatRecord> PendingWrites::find_stat_record(const std::string& path) const {
  const ForkSafeLock lock(mutex_);
  const auto at = batch_.stat_records.find(path);
  return at == batch_.stat_records.end() ? std::nullopt : std::optional(at->second);
}

std::map<std::string, std::int64_t, std::less<>> PendingWrites::counters() const {
  const ForkSafeLock lock(mutex_);
  return batch_.counters;
}

bool PendingWrites::empty() const {
  const ForkSafeLock lock(mutex_);
  return batch_.empty();
}

PendingWrites::Batch PendingWrites::take() {
  const ForkSafeLock lock(mutex_);
  drop_inherited();
  return std::exchange(batch_, {});
}

void PendingWrites::restore(Batch batch) {
  const ForkSafeLock lock(mutex_);
  drop_inherited();
  for (const auto& [name, uses] : batch.uses) {
    Uses& now = batch_.uses[name];
    now.count += uses.count;
    now.last_s = std::max(now.last_s, uses.last_s);
  }
  for (const auto& [name, delta] : batch.counters) {
    std::int64_t& pending = batch_.counters[name];
    pending = sum_of_counts(pending, delta);
  }
  batch_.stat_records.merge(batch.stat_records);  // keeps records that were added since
  append(batch_.damaged, batch.damaged);
  append(batch_.damaged_requests, batch.damaged_requests);
}

Result<void> apply(SqliteHandle& db, const PendingWrites::Batch& batch) {
  assert(db.in_transaction());
  for (const ObjectName& name : batch.damaged) {
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_object(db, name));
  }
  for (const RequestDigest& request : batch.damaged_requests) {
    CUKILN_TRY(const auto sound, request_of(db, request));
    if (!sound) {  // it was not stored again since
      CUKILN_TRY([[maybe_unused]] const bool removed, remove_request(db, request));
    }
  }
  CUKILN_CHECK(apply_uses(db, batch));
  for (const auto& [name, delta] : batch.counters) {
    CUKILN_CHECK(db.query("INSERT INTO counter(name, value) VALUES(?1,?2) ON CONFLICT(name) "
                          "DO UPDATE SET value=min(iif(value BETWEEN 0 AND ?3, value, 0)+?2, ?3)")
                     .text(name)
                     .number(delta)
                     .number(kMaxCount)
                     .run());
  }
  return apply_stat_records(db, batch);
}

}  // namespace cukiln
