// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "addons/fleet/endpoint.hpp"
#include "core/base/mutex.hpp"
#include "core/store/object_name.hpp"

namespace cukiln {

/// Names of objects that were absent or rejected, and the time until which they are not requested
/// again. Bounded: it drops names when it is full. The time is passed in, so that tests can control
/// it. Threads: safe.
class NegativeCache {
 public:
  static constexpr std::size_t kMaxNames = 65'536;

  bool has(const ObjectName& name, SteadyTime now);
  void add(const ObjectName& name, SteadyTime until, SteadyTime now);
  void remove(const ObjectName& name);
  std::size_t size() const;

 private:
  struct Hash {
    std::size_t operator()(const ObjectName& name) const noexcept {
      return std::hash<ByteView>()(view_of(name));
    }
  };
  mutable Mutex mutex_;
  std::unordered_map<ObjectName, SteadyTime, Hash> until_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln
