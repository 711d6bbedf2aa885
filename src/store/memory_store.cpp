#include "store/memory_store.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "store/entry_codec.hpp"
#include "store/fork_gate.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxSetsPerRequest = 4;

}  // namespace

Result<std::vector<RecordedSet>> MemoryStore::find_dependency_sets(const RequestDigest& request,
                                                                   ByteView request_canonical) {
  const ForkGate::Pass pass;
  const std::lock_guard hold(mutex_);
  std::vector<RecordedSet> sets;
  const auto keys = by_request_.find(request);
  if (keys == by_request_.end()) {
    return sets;
  }
  for (auto key = keys->second.rbegin(); key != keys->second.rend(); ++key) {
    const StoreEntry& entry = by_key_.at(*key)->entry;
    if (entry.request_canonical == request_canonical) {
      sets.push_back({*key, entry.dependencies, nullptr});
    }
  }
  return sets;
}

Lookup MemoryStore::get(const CacheKey& key) {
  const ForkGate::Pass pass;
  const std::lock_guard hold(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) {
    ++stats_.misses;
    return std::optional<StoreEntry>();
  }
  order_.splice(order_.begin(), order_, at->second);
  StoreEntry& entry = at->second->entry;
  ++stats_.hits;
  ++entry.hits;
  entry.last_used_s = std::max(entry.last_used_s, clock_.now_s());
  return std::optional<StoreEntry>(entry);
}

Lookup MemoryStore::peek(const CacheKey& key) {
  const ForkGate::Pass pass;
  const std::lock_guard hold(mutex_);
  const auto at = by_key_.find(key);
  return at == by_key_.end() ? std::optional<StoreEntry>() : at->second->entry;
}

Result<PutOutcome> MemoryStore::put(const StoreEntry& entry) {
  const EncodedEntry encoded(entry);
  CUKILN_CHECK(check_consistent(entry, encoded));
  return insert(entry, encoded.bytes() + entry.source_text.size());
}

PutOutcome MemoryStore::keep(const StoreEntry& entry) {
  return insert(entry, entry.cubin.image.size() + entry.request_canonical.size() +
                           entry.cubin.log.size() + 4096);
}

PutOutcome MemoryStore::insert(const StoreEntry& entry, std::uint64_t bytes) {
  if (bytes > max_bytes_) {
    return PutOutcome::too_large;
  }
  const ForkGate::Pass pass;
  const std::lock_guard hold(mutex_);
  if (by_key_.count(entry.key) != 0) {
    return PutOutcome::already_there;
  }
  while (bytes_ + bytes > max_bytes_ && !order_.empty()) {
    erase(std::prev(order_.end()));
    ++stats_.evicted;
  }
  order_.push_front({entry, entry.source_text, bytes});
  Slot& slot = order_.front();
  slot.entry.source_text.clear();
  if (slot.entry.created_s == 0) {
    slot.entry.created_s = slot.entry.last_used_s = clock_.now_s();
  }
  by_key_[entry.key] = order_.begin();
  by_request_[entry.request].push_back(entry.key);
  bytes_ += bytes;
  ++stats_.stored;
  drop_old_sets(entry.request);
  return PutOutcome::stored;
}

void MemoryStore::drop_old_sets(const RequestDigest& request) {
  while (by_request_[request].size() > kMaxSetsPerRequest) {
    erase(by_key_.at(by_request_[request].front()));
    ++stats_.evicted;
  }
}

void MemoryStore::erase(Order::iterator slot) {
  const StoreEntry& entry = slot->entry;
  const auto keys = by_request_.find(entry.request);
  keys->second.erase(std::find(keys->second.begin(), keys->second.end(), entry.key));
  if (keys->second.empty()) {
    by_request_.erase(keys);
  }
  by_key_.erase(entry.key);
  bytes_ -= slot->bytes;
  order_.erase(slot);
}

Result<bool> MemoryStore::remove(const CacheKey& key) {
  const ForkGate::Pass pass;
  const std::lock_guard hold(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) {
    return false;
  }
  erase(at->second);
  return true;
}

std::uint64_t MemoryStore::remove_all() {
  const ForkGate::Pass pass;
  const std::lock_guard hold(mutex_);
  const std::uint64_t count = order_.size();
  by_key_.clear();
  by_request_.clear();
  order_.clear();
  bytes_ = 0;
  return count;
}

Result<std::vector<EntrySummary>> MemoryStore::list() {
  const ForkGate::Pass pass;
  const std::lock_guard hold(mutex_);
  std::vector<EntrySummary> entries;
  for (auto slot = order_.rbegin(); slot != order_.rend(); ++slot) {
    const StoreEntry& entry = slot->entry;
    entries.push_back({entry.key, entry.labels, entry.cubin.kernels, entry.cubin.image.size(),
                       entry.dependencies.present.size(), entry.compile_us, entry.created_s,
                       entry.last_used_s, entry.hits, entry.origin, entry.signer});
  }
  return entries;
}

StoreStats MemoryStore::stats() {
  const ForkGate::Pass pass;
  const std::lock_guard hold(mutex_);
  StoreStats now = stats_;
  now.entries = order_.size();
  now.bytes = bytes_;
  return now;
}

Result<std::string> MemoryStore::source_text(const CacheKey& key) {
  const ForkGate::Pass pass;
  const std::lock_guard hold(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) {
    return make_error(ErrorCode::not_found, "no entry {} in memory", key.hex());
  }
  return at->second->source_text;
}

}  // namespace cukiln
