// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/context.hpp"
#include "wire/daemon_messages.hpp"

namespace cukiln::cli {

/// What the daemon that answers at one of `sockets` says of itself. Errors: nobody does.
Result<wire::DaemonSnapshot> ask_daemon(const std::vector<std::string>& sockets);

Json json_of(const wire::DaemonSnapshot& snapshot);
std::string text_of(const wire::DaemonSnapshot& snapshot);

}  // namespace cukiln::cli
