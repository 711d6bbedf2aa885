// SPDX-License-Identifier: Apache-2.0
#include "core/store/memory_store.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/store/object_codec.hpp"

namespace cukiln {

Result<SetTree> MemoryStore::find_sets(const RequestDigest& request, ByteView) {
  const ForkSafeLock lock(mutex_);
  const auto sets = by_request_.find(request);
  return sets != by_request_.end() ? sets->second : SetTree();
}

Lookup MemoryStore::find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                         Purpose purpose) {
  CUKILN_TRY(const SetTree tree, find_sets(request, request_canonical));
  // Files are read without the lock.
  auto found = find_in_sets(tree, request_canonical, check,
                            [this](const SetTree::Leaf& leaf) { return peek(leaf.key); });
  return found && *found && purpose == Purpose::use ? get((*found)->key) : std::move(found);
}

Result<std::vector<RecordedSet>> MemoryStore::list_sets(const RequestDigest& request, ByteView) {
  const ForkSafeLock lock(mutex_);
  std::vector<RecordedSet> sets;
  for (const Slot& slot : order_) {
    if (slot.entry.request == request) {
      sets.push_back({slot.entry.key, slot.entry.dependencies});
    }
  }
  return sets;
}

Lookup MemoryStore::get(const CacheKey& key) {
  const ForkSafeLock lock(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) {
    ++stats_.misses;
    return std::optional<StoreEntry>();
  }
  StoreEntry& entry = at->second->entry;
  if (!entry.is_failure) {
    order_.splice(order_.begin(), order_, at->second);
  }
  ++stats_.hits;
  ++entry.hits;
  entry.last_used_s = std::max(entry.last_used_s, clock_.now_s());
  return std::optional<StoreEntry>(entry);
}

Lookup MemoryStore::peek(const CacheKey& key) {
  const ForkSafeLock lock(mutex_);
  const auto at = by_key_.find(key);
  return at == by_key_.end() ? std::optional<StoreEntry>() : at->second->entry;
}

Result<PutOutcome> MemoryStore::put(const StoreEntry& entry) {
  const Object encoded = encode(entry);
  CUKILN_CHECK(check_consistent(entry, encoded));
  return insert(entry, encoded.bytes() + entry.source_text.size());
}

PutOutcome MemoryStore::put_verified(const StoreEntry& entry) {
  return insert(entry, entry.cubin.image.size() + entry.request_canonical.size() +
                           entry.cubin.log.size() + 4096);
}

PutOutcome MemoryStore::insert(const StoreEntry& entry, std::uint64_t bytes) {
  if (bytes > max_bytes_) {
    return PutOutcome::too_large;
  }
  const ForkSafeLock lock(mutex_);
  if (by_key_.count(entry.key) != 0) {
    return PutOutcome::already_there;
  }
  while (bytes_ + bytes > max_bytes_ && !order_.empty()) {
    erase(std::prev(order_.end()));
    ++stats_.evicted;
  }
  Order made;  // everything that may run out of memory comes before the first change
  made.push_front({entry, entry.source_text, bytes});
  Slot& slot = made.front();
  slot.entry.source_text.clear();
  slot.entry.cubin.ptx = {};
  if (slot.entry.created_s == 0) {
    slot.entry.created_s = slot.entry.last_used_s = clock_.now_s();
  }
  const auto load = [this](const SetTree::Leaf& leaf)
                        CUKILN_REQUIRES(mutex_) -> std::optional<DependencySet> {
    const auto at = by_key_.find(leaf.key);
    return at != by_key_.end() ? std::optional(at->second->entry.dependencies) : std::nullopt;
  };
  SetTree sets = by_request_[entry.request];
  sets.insert({entry.key}, entry.dependencies, load);
  by_key_.emplace(entry.key, made.begin());
  by_request_.find(entry.request)->second = std::move(sets);
  order_.splice(entry.is_failure ? order_.end() : order_.begin(), made);
  bytes_ += bytes;
  ++stats_.stored;
  return PutOutcome::stored;
}

void MemoryStore::erase(Order::iterator slot) {
  const StoreEntry& entry = slot->entry;
  const auto keys = by_request_.find(entry.request);
  assert(keys != by_request_.end() && by_key_.contains(entry.key) && bytes_ >= slot->bytes);
  keys->second.remove(entry.key);
  if (keys->second.empty()) {
    by_request_.erase(keys);
  }
  by_key_.erase(entry.key);
  bytes_ -= slot->bytes;
  order_.erase(slot);
}

Result<bool> MemoryStore::remove(const ObjectName& name) {
  const ForkSafeLock lock(mutex_);
  const auto at = by_key_.find(CacheKey{name.bytes});
  if (at == by_key_.end()) {
    return false;
  }
  erase(at->second);
  return true;
}

std::uint64_t MemoryStore::remove_all() {
  const ForkSafeLock lock(mutex_);
  const std::uint64_t count = order_.size();
  by_key_.clear();
  by_request_.clear();
  order_.clear();
  bytes_ = 0;
  return count;
}

Result<std::vector<EntrySummary>> MemoryStore::list() {
  const ForkSafeLock lock(mutex_);
  std::vector<EntrySummary> entries;
  for (auto slot = order_.rbegin(); slot != order_.rend(); ++slot) {
    const StoreEntry& entry = slot->entry;
    if (entry.is_failure) {
      continue;
    }
    entries.push_back({entry.key, entry.labels, entry.cubin.kernels, entry.cubin.image.size(),
                       entry.dependencies.files(), entry.compile_us, entry.created_s,
                       entry.last_used_s, entry.hits, entry.origin, entry.signer,
                       entry.peak_bytes});
  }
  return entries;
}

StoreStats MemoryStore::stats() {
  const ForkSafeLock lock(mutex_);
  StoreStats now = stats_;
  now.entries = static_cast<std::uint64_t>(std::count_if(
      order_.begin(), order_.end(), [](const Slot& slot) { return !slot.entry.is_failure; }));
  now.bytes = bytes_;
  return now;
}

Result<std::string> MemoryStore::source_text(const CacheKey& key) {
  const ForkSafeLock lock(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) {
    return make_error(ErrorCode::not_found, "no entry {} in memory", key.hex());
  }
  return at->second->source_text;
}

}  // namespace cukiln
