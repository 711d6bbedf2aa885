// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/context.hpp"

namespace cukiln::cli {

/// A system store that was written.
struct SystemStoreSummary {
  std::string directory;      ///< as resolved
  std::uint64_t entries = 0;  ///< with those that were there before
  std::uint64_t bytes = 0;
};

/// Returns an error in a build without the add-on that writes system stores.
Result<void> require_system_stores();

/// Adds the entries of `keys` to the system store in `directory`. Errors: those of
/// whole_entry and of SystemStoreWriter.
Result<SystemStoreSummary> add_to_system_store(Context& context, const std::string& directory,
                                               const std::vector<CacheKey>& keys);

}  // namespace cukiln::cli
