// SPDX-License-Identifier: Apache-2.0
// What the command line has without src/addons/daemon.
#include "cli/command.hpp"
#include "cli/running_daemon.hpp"

namespace cukiln::cli {

std::unique_ptr<Command> make_daemon() { return make_absent("daemon", "daemon"); }

Result<std::string> running_daemon(const std::vector<std::string>& /*sockets*/) {
  return Error(ErrorCode::not_found, "this cukiln was built without src/addons/daemon");
}

bool has_daemon_program() { return false; }

}  // namespace cukiln::cli
