// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/logger.hpp"
#include "core/base/mutex.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln {

/// The blobs that a loader was asked for, as they were then: KernelLoader::fixed_blob. Threads:
/// safe.
class FixedBlobs {
 public:
  FixedBlobs(TieredStore& tiers, const Logger& log) : tiers_(tiers), log_(log) {}

  Result<std::optional<std::string>> get(
      std::string_view kind, std::string_view key,
      const std::function<Result<void>(std::string_view bytes)>& check) CUKILN_EXCLUDES(mutex_);

 private:
  TieredStore& tiers_;
  const Logger& log_;
  Mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::optional<std::string>> blobs_
      CUKILN_GUARDED_BY(mutex_);  // by kind and key
};

}  // namespace cukiln
