// SPDX-License-Identifier: Apache-2.0
#include "core/store/eviction.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/result.hpp"
#include "core/store/object_codec.hpp"

namespace cukiln {

namespace {

constexpr std::uint64_t kSlackDivisor =
    8;  // up to an eighth above the cap is left to the maintenance owner
constexpr std::int64_t kVacuumPages = 2048;

}  // namespace

Result<std::uint64_t> live_bytes(SqliteHandle& db) {
  CUKILN_TRY(const std::int64_t pages, db.number("PRAGMA page_count"));
  CUKILN_TRY(const std::int64_t unused, db.number("PRAGMA freelist_count"));
  CUKILN_TRY(const std::int64_t size, db.number("PRAGMA page_size"));
  return static_cast<std::uint64_t>((pages - unused) * size);
}

Result<void> Eviction::make_room(SqliteHandle& db, std::uint64_t bytes) {
  const auto began = std::chrono::steady_clock::now();
  bool is_run = false;
  auto made = evict_for(db, bytes, is_run);
  if (is_run) {
    session_.remove_leftovers();
    log_.add(&MaintenanceStats::gc_by_put, began,
             made ? Result<bool>(true) : Result<bool>(made.error()), accounting_.now_s());
  }
  return made;
}

Result<void> Eviction::evict_for(SqliteHandle& db, std::uint64_t bytes, bool& is_run) {
  const std::uint64_t cap = session_.limits().max_bytes();
  for (bool first = true;; first = false) {
    CUKILN_TRY(const std::uint64_t live, live_bytes(db));
    if (live + bytes <= cap ||
        (live + bytes <= cap + cap / kSlackDivisor && !session_.is_maintenance_due_here())) {
      return {};  // the maintenance owner evicts
    }
    is_run = true;
    // The uses of this process count in the choice of what is evicted.
    if (first && !accounting_.pending().empty()) {
      PendingWrites::Batch batch = accounting_.pending().take();
      auto transaction = WriteTransaction::begin(db);
      auto applied = transaction ? apply(db, batch) : Result<void>(transaction.error());
      if (applied) {
        applied = transaction->commit();
      }
      if (!applied) {
        accounting_.pending().restore(std::move(batch));
        return applied;
      }
    }
    // Evicts a little more than is needed, so that not every put at the cap has to evict.
    CUKILN_TRY(const Evicted gone,
               evict_batch(db, live + bytes - cap + cap / 64, kNever, kBatchRows));
    if (gone.rows() == 0) {
      return {};  // the cap is below the size of an empty store
    }
  }
}

Result<Eviction::Evicted> Eviction::choose(SqliteHandle& db, std::uint64_t bytes,
                                           std::int64_t unused_since_s, std::int64_t limit,
                                           std::vector<std::int64_t>* victims) {
  CUKILN_TRY(const std::int64_t page, db.number("PRAGMA page_size"));
  Evicted chosen;
  for (const bool failures : {true, false}) {
    Query query = db.query(
        "SELECT id, bytes, last_used_s, kind FROM object "
        "WHERE (kind='" CUKILN_FAILURE_KIND "')=? ORDER BY last_used_s LIMIT ?");
    query.number(failures ? 1 : 0);
    query.number(limit < 0 ? limit : limit - static_cast<std::int64_t>(chosen.rows()));
    for (;;) {
      CUKILN_TRY(const bool row, query.next());
      if (!row || (chosen.bytes >= bytes && query.column_number(2) >= unused_since_s)) {
        break;
      }
      // Counts the payload's own pages only: the row itself shares pages with others.
      const std::int64_t size = std::max<std::int64_t>(query.column_number(1), 0);
      const auto whole_pages = static_cast<std::uint64_t>((size + page - 1) / page * page);
      const bool is_blob = !query.column_bytes(3).empty();
      chosen.bytes += whole_pages;
      if (failures) {
        ++chosen.failures;
      } else {
        (is_blob ? chosen.blob_bytes : chosen.entry_bytes) += whole_pages;
        ++(is_blob ? chosen.blobs : chosen.entries);
      }
      if (victims != nullptr) {
        victims->push_back(query.column_number(0));
      }
    }
  }
  return chosen;
}

Result<Eviction::Evicted> Eviction::evict_batch(SqliteHandle& db, std::uint64_t bytes,
                                                std::int64_t unused_since_s, std::int64_t rows) {
  assert(rows > 0);  // a negative limit is none, and a transaction with all rows blocks others
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  std::vector<std::int64_t> victims;
  CUKILN_TRY(const Evicted gone, choose(db, bytes, unused_since_s, rows, &victims));
  std::vector<Event> events = events_of(db, victims);
  for (const std::int64_t id : victims) {
    CUKILN_CHECK(db.query("DELETE FROM object WHERE id=?").number(id).run());
  }
  CUKILN_CHECK(transaction.commit());
  accounting_.counters().add(StoreEvent::evicted, gone.entries);
  const auto count = [&](const char* counter, std::uint64_t delta) {
    if (delta != 0) {
      accounting_.pending().add_count(counter, static_cast<std::int64_t>(delta));
    }
  };
  count("evicted", gone.entries);
  count("failures_evicted", gone.failures);
  count("evicted_bytes", gone.entry_bytes);
  count("blobs_evicted", gone.blobs);
  count("blob_bytes_evicted", gone.blob_bytes);
  for (Event& event : events) {
    session_.options().events->add([&] { return std::move(event); });
  }
  return gone;
}

std::vector<Event> Eviction::events_of(SqliteHandle& db, const std::vector<std::int64_t>& ids) {
  std::vector<Event> events;
  if (session_.options().events == nullptr) {
    return events;
  }
  for (const std::int64_t id : ids) {
    Query query = db.query("SELECT name, summary FROM object WHERE id=? AND kind=''");
    query.number(id);
    const auto row = query.next();
    if (!row || !*row) {
      continue;
    }
    const auto summary = decode_summary(query.column_bytes(1)).value_or(EntrySummaryFields());
    Event& event = events.emplace_back();
    event.kind = EventKind::evict;
    event.key = digest_from<CacheKey>(query.column_bytes(0));
    event.module = summary.labels.name;
    event.target = Target::parse(summary.labels.target).value_or(Target());
    event.reason = "the least recently used";
  }
  return events;
}

Error Eviction::no_space_error(const Error& why) const {
  return make_error(why.code(),
                    "no space for the store in {}: {}; free some disk space, or choose another "
                    "directory",
                    session_.directory().root(), why.message());
}

void Eviction::warn_of_full_disk(const Error& why) {
  if (!warned_of_full_disk_.exchange(true)) {
    session_.options().log.warn(
        "no space for the store in {}: {}; old entries are evicted to make room",
        session_.directory().root(), why.message());
  }
}

void Eviction::free_disk(SqliteHandle& db, std::uint64_t bytes) {
  // Each step may fail for lack of space, and the next one may still help.
  make_room_to_delete(db);
  const std::uint64_t reserve = session_.limits().reserve_bytes();
  // A store smaller than the reserve cannot give it back: its entries would be lost for nothing.
  const bool gives_reserve = live_bytes(db).value_or(0) > 4 * bytes + reserve;
  static_cast<void>(evict_batch(db, 4 * bytes + (gives_reserve ? reserve : 0), kNever, kBatchRows));
  return_free_pages(db);
}

void Eviction::make_room_to_delete(SqliteHandle& db) {
  session_.free_reserve();
  static_cast<void>(session_.checkpoint(db));
}

void Eviction::return_free_pages(SqliteHandle& db) {
  static_cast<void>(db.query("PRAGMA incremental_vacuum(2048)").run());
  static_cast<void>(session_.checkpoint(db));
}

Result<void> Eviction::shrink_file() {
  const auto wait = session_.options().write_wait;
  for (bool more = true; more;) {
    CUKILN_TRY(more, session_.write(wait, [&](SqliteHandle& db) -> Result<bool> {
      static_assert(kVacuumPages == 2048);
      CUKILN_CHECK(db.query("PRAGMA incremental_vacuum(2048)").run());
      CUKILN_TRY(const std::int64_t unused, db.number("PRAGMA freelist_count"));
      return unused > 0;
    }));
  }
  return session_.write(wait, [&](SqliteHandle& db) -> Result<void> {
    CUKILN_TRY([[maybe_unused]] const bool cut, session_.checkpoint(db));
    session_.remove_leftovers();
    session_.make_reserve();
    db.use_cache(SqliteHandle::Cache::small);
    return {};
  });
}

}  // namespace cukiln
