// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/logger.hpp"
#include "core/base/result.hpp"
#include "core/key/stat_cache.hpp"
#include "core/store/pending_writes.hpp"
#include "core/store/put_failures.hpp"
#include "core/store/sqlite_store.hpp"
#include "core/store/sqlite_tier.hpp"
#include "core/store/store_accounting.hpp"

#include <cukiln/store.hpp>

namespace cukiln {

/// What opens a TieredStore.
struct TieredStoreOptions {
  StoreOptions store;
  std::uint64_t memory_bytes = 256ull << 20;
  SqliteStoreOptions disk;  ///< directory, cap and log come from `store`
  /// The shortest time until a disk tier that cannot be opened or written is opened again.
  std::chrono::milliseconds reopen_after = SqliteTier::kPause;
};

/// The user's store on disk and the system store, in this order: the same way for entries and blobs
/// to look up, put and list. Both may be missing. One that fails is a miss, which is counted and
/// logged, and is not used for a while. Threads: safe, except for `open`.
class DiskTiers {
 public:
  /// The arguments outlive this.
  DiskTiers(const TieredStoreOptions& options, const Logger& log, StoreCounters& counters)
      : options_(options), log_(log), counters_(counters) {}
  void open();

  SqliteStore* user() const noexcept { return user_.store(); }
  SqliteStore* system() const noexcept { return system_.store(); }
  /// Returns the user's store. Errors: io with the bypass reason if there is none.
  Result<SqliteStore*> need_user() const;
  /// Why there is no user's store; empty if there is one.
  const std::string& bypass_reason() const noexcept;
  /// Why there is a system store that cannot be used; empty if there is none, or it is used.
  const std::string& system_problem() const noexcept { return system_problem_; }

  // The counters and stat records of the user's store; those of this process if there is none.

  void count(std::string_view counter, std::int64_t delta = 1);
  /// Returns the cumulative counters by name.
  Result<std::map<std::string, std::int64_t>> counters();
  std::optional<StatRecord> find_stat_record(const std::string& path);
  void save_stat_records(std::vector<StatRecord> records);

  /// Runs `query` on each store, and passes what it returns, and the tier, to `take` until that is
  /// true.
  template <class Query, class Take>
  void for_each(const char* op, const Query& query, const Take& take) {
    for (SqliteTier* const tier : {&user_, &system_}) {
      if (auto answer = tier->query(op, query);
          answer && take(*answer, tier == &user_ ? Tier::disk : Tier::system)) {
        return;
      }
    }
  }

  /// Returns the first object that `look_up` finds and `accept` takes.
  template <class LookUp, class Accept>
  auto search(const LookUp& look_up, const Accept& accept)
      -> std::remove_reference_t<decltype(*look_up(std::declval<SqliteStore&>()))> {
    std::remove_reference_t<decltype(*look_up(std::declval<SqliteStore&>()))> found;
    for_each("get", look_up, [&](auto& answer, Tier tier) {
      if (answer && accept(*answer, tier)) {
        found = std::move(answer);
      }
      return found.has_value();
    });
    return found;
  }

  /// Stores an object in the user's store; not_stored if there is none.
  template <class T>
  Result<PutOutcome> put(const T& object) {
    SqliteStore* const store = user_.store_for_put();
    if (store == nullptr) {
      return PutOutcome::not_stored;
    }
    if (!user_.allows()) {
      // The failure that opened the circuit, so that all objects that it costs have one reason.
      return put_failures_.last().value_or(
          make_error(ErrorCode::timeout, "the disk store failed and is not used for {} s",
                     SqliteTier::kPause.count()));
    }
    auto outcome = store->put(object);
    if (!outcome && outcome.error().code() != ErrorCode::invalid_argument) {
      user_.failed("put", outcome.error());
    } else {
      user_.succeeded();
    }
    return outcome;
  }
  /// Returns the user's store for a put; null if there is none.
  SqliteStore* store_for_put() { return user_.store_for_put(); }
  /// Warns that an entry was not stored, unless there was such a warning a moment ago.
  void warn_not_stored(const StoreEntry& entry, const Error& error);

  /// Lists what `first` has, then what only the system store has. `id` is the member that names an
  /// object, `list` asks one tier.
  template <class Summary, class Id, class List>
  Result<std::vector<Summary>> list(ObjectTier& first, Id Summary::*id, const List& list_one) {
    std::vector<Summary> all;
    std::unordered_set<Id> known;
    for (ObjectTier* const tier : {&first, static_cast<ObjectTier*>(system())}) {
      if (tier != nullptr) {
        CUKILN_TRY(std::vector<Summary> more, list_one(*tier));
        std::copy_if(std::move_iterator(more.begin()), std::move_iterator(more.end()),
                     std::back_inserter(all),
                     [&](const Summary& one) { return known.insert(one.*id).second; });
      }
    }
    return all;
  }

 private:
  void record_failure(SqliteStore& store, const char* op, const Error& error, bool opened);

  const TieredStoreOptions& options_;
  const Logger& log_;
  StoreCounters& counters_;
  std::string bypass_reason_;  // when the stores were opened
  std::string system_problem_;
  const SqliteTier::OnFailure on_failure_ = [this](SqliteStore& store, const char* op,
                                                   const Error& error, bool opened) {
    record_failure(store, op, error, opened);
  };
  SqliteTier user_{on_failure_};
  SqliteTier system_{on_failure_};
  PendingWrites own_records_;  // of this process, if there is no user's store
  PutFailures put_failures_;
};

}  // namespace cukiln
