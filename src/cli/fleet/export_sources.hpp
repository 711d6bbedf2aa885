// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"
#include "core/store/store_admin.hpp"

namespace cukiln::cli {

/// Runs `cukiln export --sources`: lays the sources and headers of entries below a folder, for
/// debuggers and profilers (SourceTree), and prints what is there and what is missing. `search` has
/// the folders of headers.
Exit export_sources(Context& context, StoreAdmin& admin, const std::vector<CacheKey>& entries,
                    const std::string& folder, const std::vector<std::string>& search);

}  // namespace cukiln::cli
