// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <unordered_map>
#include <utility>

#include "addons/nvrtc/nvrtc_functions.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/mutex.hpp"

namespace cukiln::dropin {

/// The live objects of a kind by handle. Handles are numbers that are not used twice in a process:
/// one of a destroyed object is none, where NVIDIA's libraries would read freed memory. Threads:
/// safe.
template <class Object>
class Handles {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const ForkSafeLock lock(mutex_);
    const std::uintptr_t handle = next_ += kStep;
    live_.emplace(handle, std::move(object));
    return reinterpret_cast<Handle>(handle);
  }
  /// Null if there is no such object.
  std::shared_ptr<Object> find(Handle handle) {
    const ForkSafeLock lock(mutex_);
    const auto at = live_.find(reinterpret_cast<std::uintptr_t>(handle));
    return at != live_.end() ? at->second : nullptr;
  }
  std::shared_ptr<Object> remove(Handle handle) {
    const ForkSafeLock lock(mutex_);
    const auto at = live_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (at == live_.end()) {
      return nullptr;
    }
    std::shared_ptr<Object> object = std::move(at->second);
    live_.erase(at);
    return object;
  }

 private:
  static constexpr std::uintptr_t kStep = 16;
  Mutex mutex_;
  std::uintptr_t next_ CUKILN_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> live_ CUKILN_GUARDED_BY(mutex_);
};

/// Runs a call of a library's. No exception leaves it.
template <class Body>
int guarded_call(int no_memory, int internal_error, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (...) {
    return internal_error;
  }
}

/// What a process has of a library in the place of NVIDIA's.
template <class Host, class Object>
struct Process {
  Host host;
  Handles<Object> live;

  /// Never destroyed: threads of the host may call it while the process ends.
  static inline Process* instance = nullptr;
  /// Makes it, once. False without memory.
  template <class Real>
  static bool open(const Real& real, const char* report) {  // throws nothing
    static constinit Mutex mutex;
    const auto make = [&] {
      const ForkSafeLock lock(mutex);
      if (instance == nullptr) {
        instance = new Process{{real, report}, {}};
        std::atexit([] { instance->host.close(); });
      }
      return 0;
    };
    return guarded_call(1, 1, make) == 0;
  }
};

}  // namespace cukiln::dropin
