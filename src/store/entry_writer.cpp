// SPDX-License-Identifier: Apache-2.0
#include "store/entry_writer.hpp"

#include <utility>

#include <fmt/ranges.h>

#include "base/result.hpp"
#include "store/entry_rows.hpp"
#include "store/meta_rows.hpp"
#include "store/peak_rows.hpp"
#include "store/set_records.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

Result<PutOutcome> EntryWriter::put(const StoreEntry& entry) {
  const EncodedEntry encoded(entry);
  CUKILN_CHECK(check_consistent(entry, encoded));
  const std::string source_text = compress(entry.source_text);
  const std::uint64_t bytes = encoded.bytes() + source_text.size();
  if (bytes > session_.limits().max_bytes() || bytes > kMaxRowBytes) {
    return PutOutcome::too_large;
  }
  if (session_.read_only()) {
    return PutOutcome::not_stored;
  }
  auto outcome = eviction_.write_insertion(
      bytes, [&](SqliteHandle& db) { return insert(db, entry, encoded, source_text); });
  if (!outcome) {
    accounting_.counters().add(StoreEvent::error);
  } else if (*outcome == PutOutcome::stored) {
    accounting_.counters().add(StoreEvent::stored);
    accounting_.pending().add_count("stored", 1);
  }
  return outcome;
}

Result<PutOutcome> EntryWriter::insert(SqliteHandle& db, const StoreEntry& entry,
                                       const EncodedEntry& encoded, ByteView source_text) {
  PendingWrites::Batch batch = accounting_.pending().take();
  auto outcome = insert(db, entry, encoded, source_text, batch);
  if (!outcome || *outcome != PutOutcome::stored) {
    accounting_.pending().restore(std::move(batch));
  }
  return outcome;
}

Result<PutOutcome> EntryWriter::insert(SqliteHandle& db, const StoreEntry& entry,
                                       const EncodedEntry& encoded, ByteView source_text,
                                       const PendingWrites::Batch& batch) {
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  for (const CacheKey& damaged : batch.damaged) {
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, damaged));
  }
  std::optional<Error> damage;
  CUKILN_TRY(const auto there, read_entry(db, entry.key, &damage));
  if (there && !there->may_trust_toolkit() && entry.may_trust_toolkit()) {
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, entry.key));
  } else if (there) {
    CUKILN_TRY(const bool known, is_recorded(db, entry.request, entry.key));
    if (!known) {  // the lookup did not find it, or it would not have been compiled again
      CUKILN_CHECK(record_set(db, entry.request, entry.request_canonical, {entry.key, 0},
                              entry.dependencies));
    }
    CUKILN_TRY(const bool updated, update_source_text(db, entry.key, source_text));
    if (!known || updated) {
      CUKILN_CHECK(transaction.commit());  // without the batch, which stays pending
    }
    return PutOutcome::already_there;
  }
  if (damage) {
    accounting_.count_damage(StoreAccounting::Damage::entry, entry.key, damage->message());
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, entry.key));
  }
  CUKILN_CHECK(repair_meta(db));
  const EntryParts& parts = encoded.parts;
  const std::int64_t created = session_.options().clock->now_s();
  const auto files = static_cast<std::int64_t>(entry.dependencies.files());
  const Checksum check =
      checksum_of(entry.key, entry.request, parts, entry.compile_us, created, files);
  CUKILN_CHECK(db.query("INSERT INTO cubin(data) VALUES(?)").blob(parts.image).run());
  const std::int64_t cubin_id = db.last_row_id();
  CUKILN_TRY(const std::int64_t now, accounting_.now_s(db));
  CUKILN_CHECK(
      db.query(
            "INSERT INTO entry(key, request, cubin_id, created_s, last_used_s, hits, compile_us, "
            "origin, cubin_bytes, dependency_count, check128, name, source, target, flags, "
            "compiler, signer, kernels, dependencies, log, source_text) "
            "VALUES(?,?,?,?,?,0,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
          .blob(view_of(entry.key))
          .blob(view_of(entry.request))
          .number(cubin_id)
          .number(created)
          .number(now)
          .number(entry.compile_us)
          .number(parts.origin)
          .number(static_cast<std::int64_t>(parts.image.size()))
          .number(files)
          .blob(view_of(check))
          .text(parts.name)
          .text(parts.source)
          .text(parts.target)
          .text(parts.flags)
          .text(parts.compiler)
          .text(parts.signer)
          .blob(parts.kernels)
          .blob(parts.dependencies)
          .text(parts.log)
          .blob(source_text)
          .run());
  const auto id = static_cast<std::uint64_t>(db.last_row_id());
  CUKILN_CHECK(drop_excess_sets(db, entry.request));
  CUKILN_CHECK(
      record_set(db, entry.request, entry.request_canonical, {entry.key, id}, entry.dependencies));
  if (entry.peak_bytes != 0) {
    CUKILN_CHECK(write_peak(db, entry.key, entry.peak_bytes));
  }
  CUKILN_CHECK(apply(db, batch));
  CUKILN_CHECK(transaction.commit());
  return PutOutcome::stored;
}

Result<bool> EntryWriter::update_source_text(SqliteHandle& db, const CacheKey& key,
                                             ByteView source_text) {
  if (source_text.empty()) {
    return false;
  }
  CUKILN_CHECK(db.query("UPDATE entry SET source_text=?1 WHERE key=?2 AND source_text<>?1")
                   .blob(source_text)
                   .blob(view_of(key))
                   .run());
  return db.changes() > 0;
}

Result<void> EntryWriter::repair_meta(SqliteHandle& db) {
  if (meta_is_checked_.load(std::memory_order_relaxed)) {
    return {};
  }
  const StoreSchema& schema = session_.options().schema;
  CUKILN_TRY(const auto wrong, check_meta(db, schema));
  if (!wrong.empty()) {
    session_.options().log.warn("in the {} store {}; the table is written again",
                                accounting_.tier_name(), fmt::join(wrong, ", "));
    CUKILN_CHECK(write_meta(db, schema));
  }
  meta_is_checked_.store(true, std::memory_order_relaxed);
  return {};
}

Result<void> EntryWriter::drop_excess_sets(SqliteHandle& db, const RequestDigest& request) {
  CUKILN_TRY(const auto leaves, leaves_of(db, request));
  if (leaves.size() <= SetTree::kMaxSets) {
    return {};
  }
  Query query = db.query(
      "SELECT key, cubin_bytes FROM entry WHERE request=? ORDER BY last_used_s, id LIMIT 1");
  CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
  if (there) {
    const auto key = digest_from<CacheKey>(query.column_bytes(0));
    accounting_.pending().add_count("evicted_bytes", query.column_number(1));
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, key));
    accounting_.counters().add(StoreEvent::evicted);
    accounting_.pending().add_count("evicted", 1);
  }
  return {};
}

Result<bool> EntryWriter::remove(const CacheKey& key) {
  int attempts = 0;
  CUKILN_TRY(const bool removed, eviction_.write_deletion([&](SqliteHandle& db) -> Result<bool> {
    ++attempts;
    CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
    CUKILN_TRY(const bool there, remove_entry(db, key));
    CUKILN_CHECK(transaction.commit());
    return there;
  }));
  if (attempts > 1) {
    CUKILN_CHECK(eviction_.shrink_file());  // makes the reserve again
  }
  return removed;
}

Result<std::uint64_t> EntryWriter::remove_all() {
  CUKILN_TRY(const std::uint64_t removed,
             eviction_.write_deletion([](SqliteHandle& db) -> Result<std::uint64_t> {
               CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
               CUKILN_TRY(const std::int64_t rows,
                          db.number("SELECT (SELECT count(*) FROM entry) + "
                                    "(SELECT count(*) FROM blob)"));
               CUKILN_CHECK(db.query("DELETE FROM blob").run());
               CUKILN_CHECK(db.query("DELETE FROM entry").run());
               CUKILN_CHECK(db.query("DELETE FROM cubin").run());
               CUKILN_CHECK(db.query("DELETE FROM request").run());
               CUKILN_CHECK(transaction.commit());
               return static_cast<std::uint64_t>(rows);
             }));
  CUKILN_CHECK(eviction_.shrink_file());
  return removed;
}

}  // namespace cukiln
