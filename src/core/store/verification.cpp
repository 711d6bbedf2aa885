// SPDX-License-Identifier: Apache-2.0
#include "core/store/verification.hpp"

#include <algorithm>

#include "core/base/result.hpp"
#include "core/store/meta_rows.hpp"
#include "core/store/table_checks.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kRepairRows = 100;

Result<void> remove_rows(SqliteHandle& db, const StoreDamage& damage, std::size_t first) {
  const std::size_t end = std::min(first + kRepairRows, damage.removals.size());
  for (std::size_t i = first; i < end; ++i) {
    const auto& [sql, id, name] = damage.removals[i];
    CUKILN_CHECK(db.query(sql).number(id).blob(name).run());
  }
  return {};
}

/// Removes rows to which nothing leads: they are no damage, and take room.
Result<void> remove_strays(SqliteHandle& db) {
  CUKILN_CHECK(db.query("DELETE FROM payload WHERE id NOT IN (SELECT id FROM object)").run());
  return db
      .query(
          "DELETE FROM request WHERE NOT EXISTS "
          "(SELECT 1 FROM object WHERE object.request=request.digest)")
      .run();
}

}  // namespace

Result<void> Verification::repair(const StoreDamage& damage) {
  const auto in_transaction = [&](auto&& body) {
    return eviction_.write_deletion([&](SqliteHandle& db) -> Result<void> {
      CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
      CUKILN_CHECK(body(db));
      return transaction.commit();
    });
  };
  for (std::size_t first = 0; first < damage.removals.size(); first += kRepairRows) {
    CUKILN_CHECK(in_transaction([&](SqliteHandle& db) { return remove_rows(db, damage, first); }));
  }
  return in_transaction([&](SqliteHandle& db) -> Result<void> {
    if (damage.meta) {
      CUKILN_CHECK(write_meta(db, session_.options().schema));
    }
    return remove_strays(db);
  });
}

Result<VerifyReport> Verification::verify(bool repair_too) {
  VerifyReport report;
  StoreDamage damage;
  auto done = session_.inspect([&](SqliteHandle& db) {
    return check_tables(db, session_.options().schema, report, damage);
  });
  const bool writes = repair_too && !session_.read_only();
  if (done && writes) {
    done = repair(damage);
    if (done) {
      report.repaired = report.damaged;
      for (std::uint64_t i = 0; i < report.damaged; ++i) {
        accounting_.count_damage(StoreAccounting::Damage::verify, {}, "found by verify");
      }
    }
  }
  if (!done && done.error().code() == ErrorCode::corrupt) {
    ++report.damaged;
    report.findings.push_back({CacheKey{}, done.error().message()});
    if (writes) {
      CUKILN_CHECK(session_.start_new_generation(done.error()));
      report.repaired = report.damaged;
    }
    return report;
  }
  if (!done) {
    return std::move(done).error();
  }
  return report;
}

}  // namespace cukiln
