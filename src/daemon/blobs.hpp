#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "base/file.hpp"
#include "store/tiered_store.hpp"

namespace cukiln::daemon {

/// Entries as sealed files in memory, made once and given to everybody who asks: what a hit costs
/// does not grow with the cubin. Least recently used out first. The loop's thread only.
class Blobs {
 public:
  Blobs(TieredStore& store, std::uint64_t max_bytes) : store_(store), max_bytes_(max_bytes) {}

  /// Null: the store has no such entry. Errors: the store's.
  Result<std::shared_ptr<UniqueFd>> get(const CacheKey& key);
  /// A fresh one: what was kept for the key is out of date.
  void put(const CacheKey& key, std::shared_ptr<UniqueFd> sealed);
  /// All of them for the zero key.
  void forget(const CacheKey& key);

 private:
  struct Blob {
    CacheKey key;
    std::shared_ptr<UniqueFd> sealed;
    std::uint64_t bytes = 0;
  };
  void erase(std::list<Blob>::iterator at);

  TieredStore& store_;
  const std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::list<Blob> order_;  // the most recently used first
  std::unordered_map<CacheKey, std::list<Blob>::iterator> by_key_;
};

}  // namespace cukiln::daemon
