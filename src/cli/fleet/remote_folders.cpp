// SPDX-License-Identifier: Apache-2.0
#include "cli/remote_folders.hpp"

#include <algorithm>

#include "addons/fleet/endpoint.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

Result<std::vector<CollectedFolder>> collect_remote_folders(const std::string& addresses,
                                                            std::int64_t max_age_s, bool dry_run) {
  std::vector<CollectedFolder> all;
  for (const std::string& address : split_addresses(addresses)) {
    CUKILN_TRY(const auto endpoint, make_remote_endpoint(address));
    if (endpoint->is_read_only()) {
      continue;
    }
    if (const auto collected = endpoint->collect(max_age_s, dry_run)) {
      CUKILN_TRY(const RemoteCollection one, *collected);
      all.push_back({endpoint->where(), one.files, one.bytes});
    }
  }
  if (all.empty()) {
    return Error(ErrorCode::invalid_argument,
                 "remote (CUKILN_REMOTE) names no folder that this machine writes; expected "
                 "file:///path, without ?ro. Other servers remove objects by their own rules");
  }
  return all;
}

bool writes_remote(const RemoteSettings& settings) {
  const auto all = split_addresses(settings.stores);
  if (!settings.sign.empty()) {
    return !settings.stores.empty();
  }
  return std::any_of(all.begin(), all.end(), [](const std::string& address) {
    const auto endpoint = make_remote_endpoint(address);
    return endpoint && (*endpoint)->takes_unsigned() && !(*endpoint)->is_read_only();
  });
}

}  // namespace cukiln::cli
