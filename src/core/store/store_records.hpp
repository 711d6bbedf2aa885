// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/key/stat_cache.hpp"
#include "core/store/pending_writes.hpp"
#include "core/store/sqlite_tier.hpp"

namespace cukiln {

/// The counters and stat records of a store: of the user's disk, or of this process alone if there
/// is no disk tier. Threads: safe.
class StoreRecords {
 public:
  explicit StoreRecords(SqliteTier& disk) : disk_(disk) {}

  void count(std::string_view counter, std::int64_t delta);
  /// Returns the cumulative counters by name.
  Result<std::map<std::string, std::int64_t>> counters();

  std::optional<StatRecord> find_stat_record(const std::string& path);
  void save_stat_records(std::vector<StatRecord> records);

 private:
  SqliteTier& disk_;
  PendingWrites memory_;
};

}  // namespace cukiln
