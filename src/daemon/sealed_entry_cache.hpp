// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.hpp"

#include <cukiln/digest.hpp>

namespace cukiln::daemon {

/// Entries of users' stores as sealed files in memory, made once and given to each process of the
/// user that asks: what a hit costs does not grow with the cubin. Least recently used out first.
/// In memory only: it asks no store. Threads: the loop's only.
class SealedEntryCache {
 public:
  using Key = std::pair<uid_t, CacheKey>;

  explicit SealedEntryCache(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  /// Null: it is not here. A hit is a use of the entry, to be noted in its store: see take_uses.
  std::shared_ptr<UniqueFd> find(uid_t user, const CacheKey& key);
  /// Does nothing if something was forgotten since `generation`: what was read before may be gone.
  void put(uid_t user, const CacheKey& key, std::shared_ptr<UniqueFd> sealed,
           std::uint64_t generation);
  /// All of the user's for the zero key.
  void forget(uid_t user, const CacheKey& key);
  /// Counts calls of `forget`.
  std::uint64_t generation() const noexcept { return generation_; }

  /// Hits since the last call, one element each.
  std::vector<Key> take_uses() { return std::exchange(uses_, {}); }
  bool has_uses() const noexcept { return !uses_.empty(); }

 private:
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<CacheKey>()(key.second) ^ (std::size_t{key.first} << 32);
    }
  };
  struct Sealed {
    Key key;
    std::shared_ptr<UniqueFd> file;
    std::uint64_t bytes = 0;
  };
  void erase(std::list<Sealed>::iterator at);

  const std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t generation_ = 0;
  std::list<Sealed> order_;  // the most recently used first
  std::unordered_map<Key, std::list<Sealed>::iterator, KeyHash> by_key_;
  std::vector<Key> uses_;
};

}  // namespace cukiln::daemon
