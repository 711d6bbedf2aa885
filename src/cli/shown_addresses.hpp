// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cukiln::cli {

/// Returns comma-separated addresses of remote stores with their passwords replaced by `***`.
std::string shown_addresses(const std::string& addresses);

}  // namespace cukiln::cli
