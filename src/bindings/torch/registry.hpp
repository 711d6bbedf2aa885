// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <cukiln/result.hpp>

#include "base/mutex.hpp"

namespace cukiln::torch {

class LinearRunner;
class MoeRunner;

/// What an op needs besides its tensors: weights, their scales, and scratch.
class Runner {
 public:
  virtual ~Runner() = default;
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  virtual Result<void> reserve(std::int64_t tokens) = 0;
  virtual LinearRunner* as_linear() noexcept { return nullptr; }
  virtual MoeRunner* as_moe() noexcept { return nullptr; }
};

/// Runners by number: generation << 20 | slot. The slot is the lowest free one and the generation
/// counts its uses, so numbers follow from the order of create and destroy, and none comes twice.
/// Threads: `find` takes no lock; the rest may be called from any thread. Who destroys a runner
/// sees to it that nobody uses it.
class Registry {
 public:
  static constexpr int kSlotBits = 20;

  Registry() = default;
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Errors: invalid_argument (no slot is left).
  Result<std::int64_t> add(std::unique_ptr<Runner> runner);
  /// Null for a number that is not, or no longer, a runner's.
  Runner* find(std::int64_t id) const noexcept;
  /// Errors: not_found.
  Result<void> remove(std::int64_t id);

 private:
  static constexpr std::size_t kChunk = 1024;
  static constexpr std::size_t kChunks = (std::size_t{1} << kSlotBits) / kChunk;

  struct Entry {
    std::atomic<Runner*> runner{nullptr};
    std::atomic<std::int64_t> id{0};  // of the runner that is there, or will be next
  };
  struct Chunk {
    Entry entries[kChunk];
  };

  Entry* entry(std::int64_t id) const noexcept;

  std::atomic<Chunk*> chunks_[kChunks] = {};
  Mutex mutex_;
  std::vector<bool> used_;  // by slot
};

/// not_found, with what may have happened.
Error no_runner(std::int64_t id);

}  // namespace cukiln::torch
