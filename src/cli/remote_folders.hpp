// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cukiln/result.hpp>
#include <cukiln/settings.hpp>

namespace cukiln::cli {

/// What `cukiln gc --remote` did in one folder that machines share.
struct CollectedFolder {
  std::string where;
  std::uint64_t files = 0, bytes = 0;  ///< that were removed, or would be
};

/// Removes from each folder among these addresses, but those of `?ro`, what was neither written nor
/// used for this long. Errors: invalid_argument (no folder among them, or an address), io.
Result<std::vector<CollectedFolder>> collect_remote_folders(const std::string& addresses,
                                                            std::int64_t max_age_s, bool dry_run);

/// True if this machine writes to a remote store: it has a key, or one of the folders needs none.
bool writes_remote(const RemoteSettings& settings);

}  // namespace cukiln::cli
