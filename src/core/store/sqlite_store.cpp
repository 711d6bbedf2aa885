// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_store.hpp"

#include "core/base/result.hpp"

namespace cukiln {

namespace {

constexpr std::chrono::milliseconds kCloseWait{100};

}  // namespace

SqliteStore::SqliteStore(std::unique_ptr<StoreSession> session)
    : session_(std::move(session)),
      accounting_(*session_),
      eviction_(*session_, accounting_, log_),
      lookup_(*session_, accounting_),
      writer_(*session_, accounting_, eviction_),
      maintenance_(*session_, accounting_, eviction_, log_),
      verification_(*session_, accounting_, eviction_),
      inventory_(*session_, accounting_) {}

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const SqliteStoreOptions& options) {
  const ForkGate::Pass pass;  // without memory for the rest, the session is destroyed under it
  CUKILN_TRY(std::unique_ptr<StoreSession> session, StoreSession::open(options));
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(session)));
}

SqliteStore::~SqliteStore() {
  const ForkGate::Pass pass;
  if (!read_only()) {
    if (auto flushed = guarded([&] { return flush(kCloseWait); }); !flushed) {
      session_->options().log.debug("uses and counters were not written: {}",
                                    flushed.error().message());
    }
  }
  static_cast<void>(guarded([&]() -> Result<void> {
    session_->checkpoint_before_close();
    return {};
  }));
  session_.reset();
}

std::string SqliteStore::lock_folder() const {
  if (read_only()) {
    return {};
  }
  auto folder = directory().folder("flights");
  return folder ? *std::move(folder) : std::string();
}

MaintenanceStats SqliteStore::maintenance_stats() const {
  MaintenanceStats stats = log_.stats();
  stats.checkpoints = session_->checkpoints();
  return stats;
}

}  // namespace cukiln
