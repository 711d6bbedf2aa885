// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/negative_cache.hpp"

#include <algorithm>

namespace cukiln {

bool NegativeCache::has(const ObjectName& name, SteadyTime now) {
  const MutexLock lock(mutex_);
  const auto at = until_.find(name);
  if (at == until_.end()) {
    return false;
  }
  if (now < at->second) {
    return true;
  }
  until_.erase(at);
  return false;
}

void NegativeCache::add(const ObjectName& name, SteadyTime until, SteadyTime now) {
  const MutexLock lock(mutex_);
  if (until_.size() >= kMaxNames) {
    for (auto at = until_.begin(); at != until_.end();) {
      at = at->second <= now ? until_.erase(at) : std::next(at);
    }
  }
  if (until_.size() >= kMaxNames) {
    until_.clear();  // rare, and simpler than an LRU order; costs one request for each name
  }
  SteadyTime& expiry = until_[name];
  expiry = std::max(expiry, until);
}

void NegativeCache::remove(const ObjectName& name) {
  const MutexLock lock(mutex_);
  until_.erase(name);
}

std::size_t NegativeCache::size() const {
  const MutexLock lock(mutex_);
  return until_.size();
}

}  // namespace cukiln
