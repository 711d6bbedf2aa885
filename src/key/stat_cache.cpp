#include "key/stat_cache.hpp"

#include <algorithm>
#include <utility>

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

std::optional<StatRecord> StatCache::find(const std::string& path, const FileStamp& stamp) {
  const std::lock_guard lock(mutex_);
  auto at = records_.find(path);
  if (at == records_.end() && source_) {
    if (auto stored = source_(path)) {
      at = records_.emplace(path, *std::move(stored)).first;
    }
  }
  if (at == records_.end() || at->second.stamp != stamp || racy(at->second)) {
    return std::nullopt;
  }
  return at->second;
}

void StatCache::put(StatRecord record) {
  const std::lock_guard lock(mutex_);
  if (!racy(record)) {
    new_.push_back(record);
  }
  records_[record.path] = std::move(record);
}

void StatCache::set_source(Source source) {
  const std::lock_guard lock(mutex_);
  source_ = std::move(source);
}

std::vector<StatRecord> StatCache::take_new() {
  const std::lock_guard lock(mutex_);
  return std::exchange(new_, {});
}

}  // namespace cukiln
