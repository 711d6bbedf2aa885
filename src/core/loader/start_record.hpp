// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "core/base/mutex.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

class TieredStore;

/// Collects how the start of a loader went, until `seal()` or its end, and then leaves a record in
/// the store's folder, once: JSON as `cukiln stats --start` prints it. Threads: safe.
class StartRecorder {
 public:
  void add(const PreloadReport& report);
  /// Adds the module of a get, at its first time.
  void add(const ModuleReport& report);
  /// Writes the record, unless nothing was added. What fails is ignored: no host depends on it.
  void write(const TieredStore& tiers, bool sealed) noexcept;

 private:
  struct Module {
    std::string id;
    bool is_hit;
    Milliseconds elapsed;
    std::string json;
  };
  void add_module(const ModuleReport& report, std::string id) CUKILN_REQUIRES(mutex_);
  std::string text(const TieredStore& tiers, bool sealed);

  std::atomic<bool> is_written_{false};
  Mutex mutex_;
  PreloadPhases phases_ CUKILN_GUARDED_BY(mutex_);
  std::size_t counts_[4] CUKILN_GUARDED_BY(mutex_) = {};  // by Outcome
  std::vector<Module> modules_ CUKILN_GUARDED_BY(mutex_);
};

/// Reads the records in the user's store, at most 16, the oldest first. Files of others are left
/// out; what is in the records may be anything.
std::vector<std::string> read_starts(const Store& store);

}  // namespace cukiln
