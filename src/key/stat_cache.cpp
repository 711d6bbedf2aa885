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
  return believes_stamps(path, stamp.device) ? find_anywhere(path, stamp) : std::nullopt;
}

std::optional<StatRecord> StatCache::find_anywhere(const std::string& path,
                                                   const FileStamp& stamp) {
  const auto believed = [&](const StatRecord& record) {
    return record.stamp == stamp && !racy(record);
  };
  Source source;
  {
    const ForkSafeLock lock(mutex_);
    if (const auto at = records_.find(path); at != records_.end()) {
      return believed(at->second) ? std::optional(at->second) : std::nullopt;
    }
    source = source_;
  }
  // Asked without the lock: a source is a store, which has locks of its own.
  auto stored = source ? source(path) : std::nullopt;
  if (!stored) {
    return std::nullopt;
  }
  const ForkSafeLock lock(mutex_);
  const StatRecord& kept = records_.try_emplace(path, *std::move(stored)).first->second;
  return believed(kept) ? std::optional(kept) : std::nullopt;
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
