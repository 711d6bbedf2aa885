// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/context.hpp"

namespace cukiln::cli {

/// Describes the daemon at the first of `sockets` that answers. Errors: not_found (none does),
/// corrupt (its answer cannot be decoded), io.
Result<std::string> running_daemon(const std::vector<std::string>& sockets);

/// Whether cukilnd is beside this program, so that it can be started.
bool has_daemon_program();

}  // namespace cukiln::cli
