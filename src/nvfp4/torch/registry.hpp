// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <cukiln/result.hpp>

#include "core/base/mutex.hpp"

namespace cukiln::torch {

class LinearRunner;
class MoeRunner;

/// The state of a layer that its ops use besides their tensors: weights and their scales.
class Runner {
 public:
  virtual ~Runner() = default;
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  virtual Result<void> reserve(std::int64_t tokens) = 0;
  virtual LinearRunner* as_linear() noexcept { return nullptr; }
  virtual MoeRunner* as_moe() noexcept { return nullptr; }
  virtual bool runs_in_python() const noexcept { return false; }

  /// The fingerprint of the weights; 0: none.
  std::int64_t fingerprint() const noexcept { return fingerprint_; }
  void set_fingerprint(std::int64_t fingerprint) noexcept { fingerprint_ = fingerprint; }

 private:
  std::int64_t fingerprint_ = 0;
};

/// Stands for an object of Python, so that it has an id among the other runners'.
class PythonRunner final : public Runner {
 public:
  Result<void> reserve(std::int64_t /*tokens*/) override { return {}; }
  bool runs_in_python() const noexcept override { return true; }
};

/// Runners by id: generation << 20 | slot. The slot is the lowest free one and the generation
/// counts its uses, so ids follow from the order of create and destroy, and none is used twice.
/// Threads: `find` takes no lock; any function may be called concurrently. A runner must not be in
/// use when it is removed.
class Registry {
 public:
  static constexpr int kSlotBits = 20;

  Registry() = default;
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Errors: invalid_argument (no slot is left).
  Result<std::int64_t> add(std::unique_ptr<Runner> runner) CUKILN_EXCLUDES(mutex_);
  /// Returns null for an id that no runner has, or has any more.
  Runner* find(std::int64_t id) const noexcept;
  /// Errors: not_found.
  Result<void> remove(std::int64_t id) CUKILN_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kChunk = 1024;
  static constexpr std::size_t kChunks = (std::size_t{1} << kSlotBits) / kChunk;

  struct Entry {
    std::atomic<Runner*> runner{nullptr};
    std::atomic<std::int64_t> id{0};  // of the slot's runner, or of its next one
  };
  struct Chunk {
    Entry entries[kChunk];
  };

  Entry* entry(std::int64_t id) const noexcept;

  std::atomic<Chunk*> chunks_[kChunks] = {};
  Mutex mutex_;
  std::vector<bool> used_ CUKILN_GUARDED_BY(mutex_);  // by slot
};

/// not_found, with the possible reasons.
Error no_runner(std::int64_t id);
/// not_found: the runner of this id has other weights than the graph was made with.
Error foreign_runner(std::int64_t id);

}  // namespace cukiln::torch
