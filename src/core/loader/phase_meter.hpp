// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "core/base/mutex.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

/// The phases of a preload, as in PreloadPhases. While threads are in several, the time counts for
/// the last of them.
enum class Phase : std::size_t { find, hash, look_up, fetch, compile, load };

/// The phases as C++, JSON and people name them.
struct NamedPhase {
  const char* field;
  const char* name;
  Milliseconds PreloadPhases::*time;
};
inline constexpr NamedPhase kPhases[] = {
    {"find_ms", "find", &PreloadPhases::find},
    {"hash_ms", "hash", &PreloadPhases::hash},
    {"look_up_ms", "look up", &PreloadPhases::look_up},
    {"fetch_ms", "fetch", &PreloadPhases::fetch},
    {"compile_ms", "compile", &PreloadPhases::compile},
    {"load_ms", "load", &PreloadPhases::load},
};

/// Adds up the wall time that a call spends in each phase. Threads: safe.
class PhaseMeter {
 public:
  /// A thread's stay in a phase. Without a meter it does nothing.
  class Scope {
   public:
    Scope(PhaseMeter* meter, Phase phase) : meter_(meter), phase_(phase) {
      if (meter_ != nullptr) {
        meter_->change(phase_, 1);
      }
    }
    ~Scope() {
      if (meter_ != nullptr) {
        meter_->change(phase_, -1);
      }
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseMeter* const meter_;
    const Phase phase_;
  };

  /// Call it when no thread is in a phase.
  PreloadPhases phases() const {
    const MutexLock lock(mutex_);
    return {spent_[0], spent_[1], spent_[2], spent_[3], spent_[4], spent_[5]};
  }

 private:
  static constexpr std::size_t kCount = 6;

  void change(Phase phase, int by) {
    const MutexLock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t i = kCount; i-- > 0;) {
      if (threads_[i] != 0) {
        spent_[i] += now - since_;
        break;
      }
    }
    since_ = now;
    threads_[static_cast<std::size_t>(phase)] += by;
  }

  mutable Mutex mutex_;
  std::chrono::steady_clock::time_point since_ CUKILN_GUARDED_BY(mutex_);
  std::array<int, kCount> threads_ CUKILN_GUARDED_BY(mutex_){};
  std::array<Milliseconds, kCount> spent_ CUKILN_GUARDED_BY(mutex_){};
};

}  // namespace cukiln
