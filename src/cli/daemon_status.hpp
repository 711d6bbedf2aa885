// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/context.hpp"
#include "wire/daemon_messages.hpp"

namespace cukiln::cli {

/// Asks the daemon at the first of `sockets` that answers for its state. Errors: not_found (no
/// daemon answers), corrupt (its answer cannot be decoded), io.
Result<wire::DaemonSnapshot> ask_daemon(const std::vector<std::string>& sockets);

Json json_of(const wire::DaemonSnapshot& snapshot);
/// Names the user as which the daemon's compile workers run, and their socket: `its own user`,
/// `user 61184, from /run/cukiln-worker/worker.sock`.
std::string user_of_workers(const wire::DaemonSnapshot& snapshot);
std::string text_of(const wire::DaemonSnapshot& snapshot);

}  // namespace cukiln::cli
