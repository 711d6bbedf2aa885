// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/sealed_entry_cache.hpp"

#include <sys/stat.h>

#include <iterator>

namespace cukiln::daemon {

namespace {

constexpr std::size_t kMaxEntries = 512;  // each has a descriptor

}  // namespace

std::shared_ptr<UniqueFd> SealedEntryCache::find(const CacheKey& key) {
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) {
    return nullptr;
  }
  uses_.push_back(at->first);
  order_.splice(order_.begin(), order_, at->second);
  return at->second->file;
}

void SealedEntryCache::put(const CacheKey& key, std::shared_ptr<UniqueFd> sealed,
                           std::uint64_t generation) {
  struct stat status {};
  ::fstat(sealed->get(), &status);  // an error leaves its size at 0
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes > max_bytes_ || generation != generation_ || by_key_.contains(key)) {
    return;
  }
  order_.push_front({key, std::move(sealed), bytes});
  by_key_[key] = order_.begin();
  bytes_ += bytes;
  while (bytes_ > max_bytes_ || order_.size() > kMaxEntries) {
    erase(std::prev(order_.end()));
  }
}

void SealedEntryCache::forget(const CacheKey& key) {
  ++generation_;
  for (auto next = order_.begin(); next != order_.end();) {
    const auto at = next++;
    if (key == CacheKey{} || at->key == key) {
      erase(at);
    }
  }
}

void SealedEntryCache::erase(std::list<Sealed>::iterator at) {
  bytes_ -= at->bytes;
  by_key_.erase(at->key);
  order_.erase(at);
}

}  // namespace cukiln::daemon
