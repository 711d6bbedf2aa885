// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <unordered_map>

#include "core/base/event_queue.hpp"
#include "core/base/logger.hpp"
#include "core/base/mutex.hpp"
#include "core/key/stat_cache.hpp"
#include "core/loader/builder.hpp"
#include "core/loader/loader_telemetry.hpp"
#include "core/loader/module_request.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

/// Whether a loader is sealed, and what a compile or a load gets then: an error, or a warning that
/// is counted. Both say why it was needed and which line the manifest lacks. Threads: safe.
class Seal {
 public:
  /// The arguments must outlive it.
  Seal(TieredStore& tiers, StatCache& stat_cache, LoaderTelemetry& telemetry, const Logger& log,
       EventQueue& events)
      : tiers_(tiers), stat_cache_(stat_cache), telemetry_(telemetry), log_(log), events_(events) {}

  void set(SealPolicy policy) noexcept {
    state_.store(policy == SealPolicy::fail ? State::fail : State::warn);
  }
  bool is_set() const noexcept { return state_.load(std::memory_order_relaxed) != State::open; }

  /// For a compile, after the lookup missed. Errors: sealed, if the policy is `fail`.
  Result<void> check_compile(const ModuleRequest& request, const Miss& miss);
  /// For the load of a module that is stored under `key`. Errors: as check_compile.
  Result<void> check_load(const ModuleRequest& request, const CacheKey& key);

 private:
  enum class State : int { open, fail, warn };

  Result<void> violate(const char* what, const ModuleRequest& request, const std::string& why);
  std::string explain(const ModuleRequest& request, const Miss& miss);

  TieredStore& tiers_;
  StatCache& stat_cache_;
  LoaderTelemetry& telemetry_;
  const Logger& log_;
  EventQueue& events_;
  std::atomic<State> state_{State::open};

  /// Explanations of the last moment, for a host that asks for a module again and again: each may
  /// take as long as listing the store.
  struct Explained {
    std::string miss;
    std::string text;
    std::chrono::steady_clock::time_point when;
  };
  Mutex mutex_;
  std::unordered_map<RequestDigest, Explained> explained_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln
