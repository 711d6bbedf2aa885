// SPDX-License-Identifier: Apache-2.0
#include "core/store/store_accounting.hpp"

#include <algorithm>
#include <utility>

#include "core/base/result.hpp"
#include "core/store/object_rows.hpp"

namespace cukiln {

namespace {

constexpr std::chrono::milliseconds kFlushWait{100};
constexpr std::int64_t kClockJumpS = 3600;

}  // namespace

void StoreAccounting::touch(const ObjectName& name) {
  if (!session_.read_only()) {
    pending_.add_use(name, now_s());
  }
}

void StoreAccounting::count_damage(Damage damage, const CacheKey& key, std::string_view why) {
  constexpr const char* kCounters[] = {"corrupt_set", "corrupt_entry", "corrupt_verify",
                                       "corrupt_blob"};
  counters_.add(StoreEvent::corrupt);
  if (!session_.read_only()) {
    pending_.add_count("corrupt", 1);
    pending_.add_count(kCounters[static_cast<int>(damage)], 1);
  }
  if (EventQueue* const events = session_.options().events) {
    events->add([&] {
      Event event;
      event.kind = EventKind::corrupt;
      event.key = key;
      event.reason = why;
      return event;
    });
  }
}

template <class Digest>
void StoreAccounting::drop(const Digest& digest, Damage damage, const CacheKey& key,
                           const Error& why) {
  const char* const what = damage == Damage::set     ? "request"
                           : damage == Damage::entry ? "entry"
                                                     : "blob";
  count_damage(damage, key, why.message());
  const bool stays = session_.read_only();
  session_.options().log.warn("a damaged {} of the {} store is {}: {}", what, tier_name(),
                              stays ? "passed over" : "removed", why.message());
  if (stays) {
    return;
  }
  pending_.add_damaged(digest);
  // If another process is writing, the next write removes the row; until then it stays a miss.
  if (auto flushed = flush(kFlushWait); !flushed) {
    session_.options().log.debug("the damaged {} is removed later: {}", what,
                                 flushed.error().message());
  }
}

void StoreAccounting::drop_damaged(const ObjectName& name, Damage what, const Error& why) {
  drop(name, what, what == Damage::entry ? CacheKey{name.bytes} : CacheKey{}, why);
}

void StoreAccounting::drop_damaged(const RequestDigest& request, const Error& why) {
  drop(request, Damage::set, {}, why);
}

Result<void> StoreAccounting::flush(std::chrono::milliseconds wait) {
  PendingWrites::Batch batch = pending_.take();
  if (batch.empty()) {
    return {};
  }
  auto done = session_.write(wait, [&](SqliteHandle& db) -> Result<void> {
    CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
    CUKILN_CHECK(apply(db, batch));
    return transaction.commit();
  });
  if (!done) {
    pending_.restore(std::move(batch));
  }
  return done;
}

Result<std::int64_t> StoreAccounting::now_s(SqliteHandle& db) {
  static_assert(kMaxLastUsedS == 4294967296);
  CUKILN_TRY(const std::int64_t stored,
             db.number("SELECT max(last_used_s) FROM object WHERE last_used_s<4294967296"));
  return now_after(stored);
}

std::int64_t StoreAccounting::now_s() { return now_after(0); }

std::int64_t StoreAccounting::now_after(std::int64_t stored_s) {
  const std::int64_t last = std::max(last_stamp_s_.load(std::memory_order_relaxed), stored_s);
  const std::int64_t clock = session_.options().clock->now_s();
  const bool is_possible = clock >= last - kClockJumpS && clock < kMaxLastUsedS;
  const std::int64_t now =
      std::min(is_possible ? std::max(clock, last) : last + 1, kMaxLastUsedS - 1);
  last_stamp_s_.store(now, std::memory_order_relaxed);
  return now;
}

const char* StoreAccounting::tier_name() const noexcept {
  return session_.options().system ? "system" : "disk";
}

}  // namespace cukiln
