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

bool is_current(const StatRecord& record, const FileStamp& stamp) noexcept {
  return record.stamp == stamp && !racy(record);
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

std::optional<ContentHash> StatCache::find(const std::string& path, const FileStamp& stamp,
                                           std::optional<std::uint64_t> mount) {
  if (mount) {
    const ForkSafeLock lock(mutex_);
    const auto known = mounts_.find(*mount);
    const auto at = records_.find(path);
    if (known != mounts_.end() && at != records_.end()) {
      return known->second && is_current(at->second, stamp) ? std::optional(at->second.digest)
                                                            : std::nullopt;
    }
  }
  const auto digest = [](const StatRecord& record) { return record.digest; };
  return trusts_stamps(path, mount) ? find_record(path, stamp, digest) : std::nullopt;
}

std::optional<StatRecord> StatCache::find_on_any_file_system(const std::string& path,
                                                             const FileStamp& stamp) {
  return find_record(path, stamp, [](const StatRecord& record) { return record; });
}

/// Takes something from the record of a file with this stamp, if there is one that can be used. A
/// hit asks for hundreds: none is copied.
template <class Take>
auto StatCache::find_record(const std::string& path, const FileStamp& stamp, const Take& take)
    -> std::optional<decltype(take(std::declval<const StatRecord&>()))> {
  const auto take_current = [&](const StatRecord& record) {
    return is_current(record, stamp) ? std::optional(take(record)) : std::nullopt;
  };
  Source source;
  {
    const ForkSafeLock lock(mutex_);
    if (const auto at = records_.find(path); at != records_.end()) {
      return take_current(at->second);
    }
    source = source_;
  }
  // Called without the lock: the source is a store, which has locks of its own.
  auto stored = source ? source(path) : std::nullopt;
  if (!stored) {
    return std::nullopt;
  }
  const ForkSafeLock lock(mutex_);
  return take_current(records_.try_emplace(path, *std::move(stored)).first->second);
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
