// SPDX-License-Identifier: Apache-2.0
#include "core/store/store_records.hpp"

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"

namespace cukiln {

void StoreRecords::count(std::string_view counter, std::int64_t delta) {
  const ForkGate::Pass pass;
  if (SqliteStore* const disk = disk_.store()) {
    disk->count(counter, delta);
  } else {
    memory_.add_count(counter, delta);
  }
}

Result<std::map<std::string, std::int64_t>> StoreRecords::counters() {
  if (SqliteStore* const disk = disk_.store()) {
    return disk->counters();
  }
  std::map<std::string, std::int64_t> own;
  for (const auto& [name, value] : memory_.counters()) {
    own[name] = value;
  }
  return own;
}

std::optional<StatRecord> StoreRecords::find_stat_record(const std::string& path) {
  SqliteStore* const disk = disk_.store();
  if (disk == nullptr) {
    return memory_.find_stat_record(path);
  }
  return disk_.is_closed() ? disk->find_stat_record(path) : std::nullopt;
}

void StoreRecords::save_stat_records(std::vector<StatRecord> records) {
  const ForkGate::Pass pass;
  if (SqliteStore* const disk = disk_.store()) {
    disk->save_stat_records(std::move(records));
  } else {
    memory_.add_stat_records(std::move(records));
  }
}

}  // namespace cukiln
