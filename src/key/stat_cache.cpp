// SPDX-License-Identifier: Apache-2.0
#include "key/stat_cache.hpp"

#include <algorithm>
#include <utility>

#include "base/fork_gate.hpp"

namespace cukiln {

namespace {

// Two seconds: the coarsest timestamps in use (FAT, old NFS). A record made that soon after the
// file's last change may describe the bytes before a second change in the same tick.
constexpr std::int64_t kRacyWindowNs = 2'000'000'000;

bool racy(const StatRecord& record) noexcept {
  return std::max(record.stamp.mtime_ns, record.stamp.ctime_ns) + kRacyWindowNs >=
         record.recorded_ns;
}

std::optional<StatRecord> if_believed(const StatRecord& record, const FileStamp& stamp) {
  return record.stamp == stamp && !racy(record) ? std::optional(record) : std::nullopt;
}

}  // namespace

bool StatCache::believes_stamps(const std::string& path, std::uint64_t device) {
  {
    const ForkSafeLock lock(mutex_);
    if (const auto known = believed_.find(device); known != believed_.end()) {
      return known->second;
    }
  }
  const bool believed = stamps_are_believed(file_system_type_(path));
  const ForkSafeLock lock(mutex_);
  return believed_.try_emplace(device, believed).first->second;
}

std::optional<StatRecord> StatCache::find(const std::string& path, const FileStamp& stamp) {
  {
    const ForkSafeLock lock(mutex_);
    const auto believed = believed_.find(stamp.device);
    const auto at = records_.find(path);
    if (believed != believed_.end() && at != records_.end()) {
      return believed->second ? if_believed(at->second, stamp) : std::nullopt;
    }
  }
  return believes_stamps(path, stamp.device) ? find_anywhere(path, stamp) : std::nullopt;
}

std::optional<StatRecord> StatCache::find_anywhere(const std::string& path,
                                                   const FileStamp& stamp) {
  Source source;
  {
    const ForkSafeLock lock(mutex_);
    if (const auto at = records_.find(path); at != records_.end()) {
      return if_believed(at->second, stamp);
    }
    source = source_;
  }
  // Asked without the lock: a source is a store, which has locks of its own.
  auto stored = source ? source(path) : std::nullopt;
  if (!stored) {
    return std::nullopt;
  }
  const ForkSafeLock lock(mutex_);
  return if_believed(records_.try_emplace(path, *std::move(stored)).first->second, stamp);
}

void StatCache::put(StatRecord record) {
  const ForkSafeLock lock(mutex_);
  if (!racy(record)) {
    new_.push_back(record);
  }
  records_[record.path] = std::move(record);
}

void StatCache::set_source(Source source) {
  const ForkSafeLock lock(mutex_);
  source_ = std::move(source);
}

std::vector<StatRecord> StatCache::take_new() {
  const ForkSafeLock lock(mutex_);
  return std::exchange(new_, {});
}

}  // namespace cukiln
