// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "addons/daemon/protocol/daemon_messages.hpp"
#include "cli/context.hpp"

namespace cukiln::cli {

/// Asks the daemon at the first of `sockets` that answers for its state. Errors: not_found (no
/// daemon answers), corrupt (its answer cannot be decoded), io.
Result<wire::DaemonSnapshot> ask_daemon(const std::vector<std::string>& sockets);

Json json_of(const wire::DaemonSnapshot& snapshot);
std::string text_of(const wire::DaemonSnapshot& snapshot);

}  // namespace cukiln::cli
