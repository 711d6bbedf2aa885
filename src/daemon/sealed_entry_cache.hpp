// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/file.hpp"
#include "daemon/user_stores.hpp"

namespace cukiln::daemon {

/// Entries of users' stores as sealed files in memory, made once and given to each process of the
/// user that asks: what a hit costs does not grow with the cubin. Least recently used out first.
/// The loop's thread only.
class SealedEntryCache {
 public:
  SealedEntryCache(UserStores& stores, std::uint64_t max_bytes) : stores_(stores), max_bytes_(max_bytes) {}

  /// Null: the user's store has no such entry. Errors: the store's.
  Result<std::shared_ptr<UniqueFd>> get(uid_t user, const CacheKey& key);
  /// All of the user's for the zero key.
  void forget(uid_t user, const CacheKey& key);

 private:
  using Key = std::pair<uid_t, CacheKey>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<CacheKey>()(key.second) ^ (std::size_t{key.first} << 32);
    }
  };
  struct Sealed {
    Key key;
    std::shared_ptr<UniqueFd> sealed;
    std::uint64_t bytes = 0;
  };
  void put(const Key& key, std::shared_ptr<UniqueFd> sealed);
  void erase(std::list<Sealed>::iterator at);

  UserStores& stores_;
  const std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::list<Sealed> order_;  // the most recently used first
  std::unordered_map<Key, std::list<Sealed>::iterator, KeyHash> by_key_;
};

}  // namespace cukiln::daemon
