// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/mutex.hpp"
#include "core/store/cubin_store.hpp"

namespace cukiln {

/// A cache of entries in this process. Evicts failures first, then the least recently used. Images
/// are shared, never copied. Threads: safe.
class MemoryStore final : public ObjectTier {
 public:
  explicit MemoryStore(std::uint64_t max_bytes, const Clock& clock = Clock::system())
      : max_bytes_(max_bytes), clock_(clock) {}

  const char* tier_name() const noexcept override { return "memory"; }
  Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
              Purpose purpose) override;
  Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical) override;
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request,
                                             ByteView request_canonical) override;
  using ObjectTier::get, ObjectTier::peek, ObjectTier::put;
  Lookup get(const CacheKey& key) override;
  Lookup peek(const CacheKey& key) override;
  Result<PutOutcome> put(const StoreEntry& entry) override;
  Result<bool> remove(const ObjectName& name) override;
  Result<std::vector<EntrySummary>> list() override;
  StoreStats stats() override;
  Result<std::string> source_text(const CacheKey& key) override;

  /// Like `put`, for an entry that another tier has verified already: it is not checked again.
  PutOutcome put_verified(const StoreEntry& entry);
  std::uint64_t remove_all();

 private:
  struct Slot {
    StoreEntry entry;  // without its source text
    std::string source_text;
    std::uint64_t bytes = 0;
  };
  using Order = std::list<Slot>;  // the most recently used first, then failures

  PutOutcome insert(const StoreEntry& entry, std::uint64_t bytes);
  void erase(Order::iterator slot) CUKILN_REQUIRES(mutex_);

  const std::uint64_t max_bytes_;
  const Clock& clock_;
  mutable Mutex mutex_;
  Order order_ CUKILN_GUARDED_BY(mutex_);
  std::unordered_map<CacheKey, Order::iterator> by_key_ CUKILN_GUARDED_BY(mutex_);
  std::unordered_map<RequestDigest, SetTree> by_request_ CUKILN_GUARDED_BY(mutex_);
  std::uint64_t bytes_ CUKILN_GUARDED_BY(mutex_) = 0;
  StoreStats stats_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln
