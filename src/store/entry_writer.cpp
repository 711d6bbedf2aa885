// SPDX-License-Identifier: Apache-2.0
#include "store/entry_writer.hpp"

#include <utility>

#include "base/result.hpp"
#include "store/entry_rows.hpp"
#include "store/peak_rows.hpp"
#include "store/set_records.hpp"

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
  if (!outcome) {
    accounting_.pending().restore(std::move(batch));
  }
  return outcome;
}

Result<PutOutcome> EntryWriter::insert(SqliteHandle& db, const StoreEntry& entry,
                                       const EncodedEntry& encoded, ByteView source_text,
                                       const PendingWrites::Batch& batch) {
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  CUKILN_CHECK(apply(db, batch));
  CUKILN_TRY(std::optional<SetTree> tree, tree_of(db, entry.request));
  if (!tree) {
    CUKILN_TRY(const bool was_damaged, remove_request(db, entry.request));
    if (was_damaged) {
      accounting_.count_damage(StoreAccounting::Damage::set, {}, "a damaged request");
    }
    tree.emplace();
  }
  CUKILN_TRY(const CheckedEntry there, read_entry(db, entry.key));
  if (there.sound) {
    const bool is_better = !there.sound->may_trust_toolkit() && entry.may_trust_toolkit();
    if (!is_better && leads_to(*tree, entry.key)) {
      CUKILN_CHECK(transaction.commit());
      return PutOutcome::already_there;
    }
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, entry.key));
  }
  if (there.damage) {
    accounting_.count_damage(StoreAccounting::Damage::entry, entry.key, there.damage->message());
    CUKILN_CHECK(remove_damaged_entry(db, entry.key));
  }
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
  CUKILN_CHECK(record_set(db, entry.request, entry.request_canonical, *std::move(tree),
                          {entry.key, id}, entry.dependencies));
  if (entry.peak_bytes != 0) {
    CUKILN_CHECK(write_peak(db, entry.key, entry.peak_bytes));
  }
  CUKILN_CHECK(transaction.commit());
  return PutOutcome::stored;
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
