// SPDX-License-Identifier: Apache-2.0
#include "core/store/object_writer.hpp"

#include <algorithm>
#include <utility>

#include "core/base/result.hpp"
#include "core/store/object_rows.hpp"
#include "core/store/set_records.hpp"
#include "core/store/source_text.hpp"

namespace cukiln {

Result<PutOutcome> ObjectWriter::put(const StoreEntry& entry) {
  Object object = encode(entry);
  CUKILN_CHECK(check_consistent(entry, object));
  const std::string source_text = entry.is_failure ? std::string() : compress(entry.source_text);
  const std::uint64_t bytes = object.bytes() + source_text.size();
  if (bytes > session_.limits().max_bytes() || bytes > kMaxRowBytes) {
    return PutOutcome::too_large;
  }
  if (session_.read_only()) {
    return PutOutcome::not_stored;
  }
  auto outcome = eviction_.write_insertion(
      bytes, [&](SqliteHandle& db) { return insert(db, entry, object, source_text); });
  if (!outcome) {
    accounting_.counters().add(StoreEvent::error);
  } else if (*outcome == PutOutcome::stored) {
    accounting_.counters().add(StoreEvent::stored);
    accounting_.pending().add_count(entry.is_failure ? "failures_stored" : "stored", 1);
  }
  return outcome;
}

Result<PutOutcome> ObjectWriter::insert(SqliteHandle& db, const StoreEntry& entry, Object& object,
                                        ByteView source_text) {
  PendingWrites::Batch batch = accounting_.pending().take();
  auto outcome = insert(db, entry, object, source_text, batch);
  if (!outcome) {
    accounting_.pending().restore(std::move(batch));
  }
  return outcome;
}

Result<PutOutcome> ObjectWriter::insert(SqliteHandle& db, const StoreEntry& entry, Object& object,
                                        ByteView source_text, const PendingWrites::Batch& batch) {
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  CUKILN_CHECK(apply(db, batch));
  CUKILN_TRY(std::optional<RequestRow> request, request_of(db, entry.request));
  if (!request) {
    CUKILN_TRY(const bool was_damaged, remove_request(db, entry.request));
    if (was_damaged) {
      accounting_.count_damage(StoreAccounting::Damage::set, {}, "a damaged request");
    }
    request.emplace();
    request->canonical = entry.request_canonical;
  }
  CUKILN_TRY(const auto there, read_entry(db, entry.key));
  if (there.sound) {
    const bool is_better = !there.sound->may_trust_toolkit() && entry.may_trust_toolkit();
    if (!is_better && leads_to(SetTree::from_verified(request->tree), entry.key)) {
      CUKILN_CHECK(transaction.commit());
      return PutOutcome::already_there;
    }
  }
  if (there.damage) {
    accounting_.count_damage(StoreAccounting::Damage::entry, entry.key, there.damage->message());
  }
  if (there.sound || there.damage) {
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_object(db, object.name));
  }
  object.created_s = session_.options().clock->now_s();
  CUKILN_TRY(const std::int64_t now, accounting_.now_s(db));
  CUKILN_TRY(const std::int64_t id,
             insert_object(db, object, view_of(entry.request), source_text, now));
  CUKILN_CHECK(drop_excess_sets(db, entry.request));
  request->peak_bytes = std::max(request->peak_bytes, static_cast<std::int64_t>(entry.peak_bytes));
  CUKILN_CHECK(record_set(db, entry.request, *std::move(request),
                          {entry.key, static_cast<std::uint64_t>(id)}, entry.dependencies));
  CUKILN_CHECK(transaction.commit());
  return PutOutcome::stored;
}

Result<PutOutcome> ObjectWriter::put(const StoreBlob& blob) {
  Object object = encode(blob);
  const std::uint64_t size = object.bytes();
  const std::uint64_t cap = session_.limits().max_bytes();
  if (size > cap) {
    return make_error(ErrorCode::invalid_argument,
                      "a blob of kind {} has {} bytes, and the store's cap is {}; raise max_size",
                      blob.kind, blob.bytes.size(), cap);
  }
  auto stored =
      eviction_.write_insertion(size, [&](SqliteHandle& db) { return insert(db, object); });
  if (stored) {
    accounting_.pending().add_count("blobs_stored", 1);
  }
  return stored;
}

Result<PutOutcome> ObjectWriter::insert(SqliteHandle& db, Object& object) {
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  CUKILN_TRY([[maybe_unused]] const bool removed, remove_object(db, object.name));
  object.created_s = session_.options().clock->now_s();
  CUKILN_TRY(const std::int64_t now, accounting_.now_s(db));
  CUKILN_TRY([[maybe_unused]] const std::int64_t id, insert_object(db, object, {}, {}, now));
  CUKILN_CHECK(transaction.commit());
  return PutOutcome::stored;
}

Result<void> ObjectWriter::drop_excess_sets(SqliteHandle& db, const RequestDigest& request) {
  CUKILN_TRY(const auto leaves, leaves_of(db, request));
  if (leaves.size() <= SetTree::kMaxSets) {
    return {};
  }
  Query query =
      db.query("SELECT name, bytes FROM object WHERE request=? ORDER BY last_used_s, id LIMIT 1");
  CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
  if (there) {
    const auto name = digest_from<ObjectName>(query.column_bytes(0));
    accounting_.pending().add_count("evicted_bytes", query.column_number(1));
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_object(db, name));
    accounting_.counters().add(StoreEvent::evicted);
    accounting_.pending().add_count("evicted", 1);
  }
  return {};
}

Result<bool> ObjectWriter::remove(const ObjectName& name) {
  int attempts = 0;
  CUKILN_TRY(const bool removed, eviction_.write_deletion([&](SqliteHandle& db) -> Result<bool> {
    ++attempts;
    CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
    CUKILN_TRY(const bool there, remove_object(db, name));
    CUKILN_CHECK(transaction.commit());
    return there;
  }));
  if (attempts > 1) {
    CUKILN_CHECK(eviction_.shrink_file());  // makes the reserve again
  }
  return removed;
}

Result<std::uint64_t> ObjectWriter::remove_all() {
  CUKILN_TRY(const std::uint64_t removed,
             eviction_.write_deletion([](SqliteHandle& db) -> Result<std::uint64_t> {
               CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
               CUKILN_TRY(const std::int64_t rows, db.number("SELECT count(*) FROM object"));
               CUKILN_CHECK(db.query("DELETE FROM object").run());
               CUKILN_CHECK(db.query("DELETE FROM payload").run());
               CUKILN_CHECK(db.query("DELETE FROM request").run());
               CUKILN_CHECK(transaction.commit());
               return static_cast<std::uint64_t>(rows);
             }));
  CUKILN_CHECK(eviction_.shrink_file());
  return removed;
}

}  // namespace cukiln
