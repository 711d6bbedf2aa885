// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/registry.hpp"

#include <algorithm>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"

namespace cukiln::torch {

Registry::~Registry() {
  for (const std::atomic<Chunk*>& slot : chunks_) {
    if (Chunk* const chunk = slot.load(); chunk != nullptr) {
      for (const Entry& each : chunk->entries) {
        delete each.runner.load();
      }
      delete chunk;
    }
  }
}

Registry::Entry* Registry::entry(std::int64_t id) const noexcept {
  if (id < 0) {
    return nullptr;
  }
  const auto slot = static_cast<std::size_t>(id) % (std::size_t{1} << kSlotBits);
  Chunk* const chunk = chunks_[slot / kChunk].load(std::memory_order_acquire);
  return chunk != nullptr ? &chunk->entries[slot % kChunk] : nullptr;
}

Runner* Registry::find(std::int64_t id) const noexcept {
  const Entry* const found = entry(id);
  if (found == nullptr) {
    return nullptr;
  }
  // The runner first: the number of a slot changes after its runner is gone.
  Runner* const runner = found->runner.load(std::memory_order_acquire);
  return found->id.load(std::memory_order_acquire) == id ? runner : nullptr;
}

Result<std::int64_t> Registry::add(std::unique_ptr<Runner> runner) {
  const ForkSafeLock lock(mutex_);
  const auto free = std::find(used_.begin(), used_.end(), false);
  const auto slot = static_cast<std::size_t>(free - used_.begin());
  if (slot == kChunk * kChunks) {
    return make_error(ErrorCode::invalid_argument,
                      "{} runners are in use, which is the most; destroy some", slot);
  }
  if (free == used_.end()) {
    used_.push_back(false);
  }
  std::atomic<Chunk*>& chunk = chunks_[slot / kChunk];
  if (chunk.load() == nullptr) {
    auto fresh = std::make_unique<Chunk>();
    for (std::size_t i = 0; i < kChunk; ++i) {
      fresh->entries[i].id = static_cast<std::int64_t>(slot / kChunk * kChunk + i);
    }
    chunk.store(fresh.release(), std::memory_order_release);
  }
  Entry& target = chunk.load()->entries[slot % kChunk];
  used_[slot] = true;
  target.runner.store(runner.release(), std::memory_order_release);
  return target.id.load();
}

Result<void> Registry::remove(std::int64_t id) {
  std::unique_ptr<Runner> removed;
  const ForkSafeLock lock(mutex_);
  if (find(id) == nullptr) {
    return no_runner(id);
  }
  Entry& target = *entry(id);
  removed.reset(target.runner.exchange(nullptr));
  target.id.fetch_add(std::int64_t{1} << kSlotBits);
  used_[static_cast<std::size_t>(id) % (std::size_t{1} << kSlotBits)] = false;
  return {};
}

Error no_runner(std::int64_t id) {
  return make_error(ErrorCode::not_found,
                    "there is no runner {}: it was destroyed, or belongs to another process. Keep "
                    "the layer that made it, and take the number from its runner_id",
                    id);
}

Error foreign_runner(std::int64_t id) {
  return make_error(
      ErrorCode::not_found,
      "runner {} has other weights than this graph was made with, which is of another "
      "process or of a layer that was replaced: make the same layers in the same "
      "order as there, or export or compile the model here",
      id);
}

}  // namespace cukiln::torch
