// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/file.hpp"

#include <cukiln/digest.hpp>

namespace cukiln::daemon {

/// An LRU cache of entries as sealed memory files. Each file is made once and sent to every process
/// that requests the entry, so that the cost of a hit does not grow with the cubin. Accesses no
/// store. Threads: the loop's only.
class SealedEntryCache {
 public:
  explicit SealedEntryCache(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  /// Returns the sealed entry, or null if it is not cached. A hit counts as a use of the entry,
  /// which must be recorded in its store: see take_uses.
  std::shared_ptr<UniqueFd> find(const CacheKey& key);
  /// Adds an entry that was read at `generation`. Does nothing if `forget` was called since then,
  /// because the entry may have been removed.
  void put(const CacheKey& key, std::shared_ptr<UniqueFd> sealed, std::uint64_t generation);
  /// Removes an entry, or all of them for the zero key.
  void forget(const CacheKey& key);
  /// The number of calls of `forget`.
  std::uint64_t generation() const noexcept { return generation_; }

  /// The hits since the last call, one element for each.
  std::vector<CacheKey> take_uses() { return std::exchange(uses_, {}); }
  bool has_uses() const noexcept { return !uses_.empty(); }

 private:
  struct Sealed {
    CacheKey key;
    std::shared_ptr<UniqueFd> file;
    std::uint64_t bytes = 0;
  };
  void erase(std::list<Sealed>::iterator at);

  const std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t generation_ = 0;
  std::list<Sealed> order_;  // the most recently used first
  std::unordered_map<CacheKey, std::list<Sealed>::iterator> by_key_;
  std::vector<CacheKey> uses_;
};

}  // namespace cukiln::daemon
