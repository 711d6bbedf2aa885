// SPDX-License-Identifier: Apache-2.0
#include "core/key/stat_cache.hpp"

#include <algorithm>
#include <utility>

#include "core/base/fork_gate.hpp"

namespace cukiln {

namespace {

// Two seconds is the coarsest timestamp in use (FAT, old NFS). A record made that soon after the
// file's last change may hold the digest of bytes that were changed again in the same tick.
constexpr std::int64_t kRacyWindowNs = 2'000'000'000;
constexpr std::size_t kMaxMounts = 1024;

bool racy(const StatRecord& record) noexcept {
  return std::max(record.stamp.mtime_ns, record.stamp.ctime_ns) + kRacyWindowNs >=
         record.recorded_ns;
}

std::optional<StatRecord> if_current(const StatRecord& record, const FileStamp& stamp) {
  return record.stamp == stamp && !racy(record) ? std::optional(record) : std::nullopt;
}

}  // namespace

bool StatCache::trusts_stamps(const std::string& path, std::optional<std::uint64_t> mount) {
  if (!mount) {
    const auto status = status_of(path);
    mount = status ? status->mount : 0;
  }
  if (*mount != 0) {
    const ForkSafeLock lock(mutex_);
    if (const auto known = mounts_.find(*mount); known != mounts_.end()) {
      return known->second;
    }
  }
  const bool reliable = reliable_(path);
  if (*mount != 0) {
    const ForkSafeLock lock(mutex_);
    if (mounts_.size() >= kMaxMounts) {
      mounts_.clear();
    }
    mounts_.try_emplace(*mount, reliable);
  }
  return reliable;
}

std::optional<StatRecord> StatCache::find(const std::string& path, const FileStamp& stamp,
                                          std::optional<std::uint64_t> mount) {
  if (mount) {
    const ForkSafeLock lock(mutex_);
    const auto known = mounts_.find(*mount);
    const auto at = records_.find(path);
    if (known != mounts_.end() && at != records_.end()) {
      return known->second ? if_current(at->second, stamp) : std::nullopt;
    }
  }
  return trusts_stamps(path, mount) ? find_on_any_file_system(path, stamp) : std::nullopt;
}

std::optional<StatRecord> StatCache::find_on_any_file_system(const std::string& path,
                                                             const FileStamp& stamp) {
  Source source;
  {
    const ForkSafeLock lock(mutex_);
    if (const auto at = records_.find(path); at != records_.end()) {
      return if_current(at->second, stamp);
    }
    source = source_;
  }
  // Called without the lock: the source is a store, which has locks of its own.
  auto stored = source ? source(path) : std::nullopt;
  if (!stored) {
    return std::nullopt;
  }
  const ForkSafeLock lock(mutex_);
  return if_current(records_.try_emplace(path, *std::move(stored)).first->second, stamp);
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
