// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/context.hpp"

#include <cukiln/manifest.hpp>

namespace cukiln::cli {

struct ManifestEntry {
  CacheKey key;
  std::string target;
};

/// Returns the entries that the modules of a manifest would hit now; `path` is its file. Errors:
/// not_found, naming misses.
Result<std::vector<ManifestEntry>> entries_of_manifest(Context& context, const Manifest& manifest,
                                                       const std::string& path);

}  // namespace cukiln::cli
