// SPDX-License-Identifier: Apache-2.0
#include "daemon/sealed_entry_cache.hpp"

#include <utility>

#include "base/result.hpp"
#include "wire/daemon_frame.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::size_t kMaxEntries = 512;  // each is a descriptor

}  // namespace

Result<std::shared_ptr<UniqueFd>> SealedEntryCache::get(uid_t user, const CacheKey& key) {
  const UserStores::Handle store = stores_.find(user);
  if (store == nullptr) {
    return std::shared_ptr<UniqueFd>();
  }
  if (const auto at = by_key_.find({user, key}); at != by_key_.end()) {
    order_.splice(order_.begin(), order_, at->second);
    if (store->disk() != nullptr) {
      store->disk()->note_use(key);
    }
    return at->second->sealed;
  }
  CUKILN_TRY(const std::optional<StoreEntry> entry, store->get(key));
  if (!entry) {
    return std::shared_ptr<UniqueFd>();
  }
  CUKILN_TRY(UniqueFd fd, to_wire(*entry).seal());
  auto sealed = std::make_shared<UniqueFd>(std::move(fd));
  put({user, key}, sealed);
  return sealed;
}

void SealedEntryCache::put(const Key& key, std::shared_ptr<UniqueFd> sealed) {
  const auto size = wire::check_sealed_file(sealed->get(), wire::kMaxAttachmentBytes);
  const std::uint64_t bytes = size ? *size : 0;
  if (bytes > max_bytes_) {
    return;
  }
  order_.push_front({key, std::move(sealed), bytes});
  by_key_[key] = order_.begin();
  bytes_ += bytes;
  while (bytes_ > max_bytes_ || order_.size() > kMaxEntries) {
    erase(std::prev(order_.end()));
  }
}

void SealedEntryCache::forget(uid_t user, const CacheKey& key) {
  for (auto next = order_.begin(); next != order_.end();) {
    const auto at = next++;
    if (at->key.first == user && (key == CacheKey{} || at->key.second == key)) {
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
