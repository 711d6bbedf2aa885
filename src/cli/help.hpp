// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/command.hpp"
#include "cli/terminal.hpp"

namespace cukiln::cli {

/// Returns the text of `cukiln --help`.
std::string general_help(const CLI::App& app, const Commands& commands, const Terminal& terminal);
/// Returns the text of `cukiln COMMAND --help`.
std::string command_help(const CLI::App& app, const Command& command, const Terminal& terminal);

/// Returns an option as help shows it: `-I, --include-path DIR`.
std::string spelling_of(const CLI::Option& option);

}  // namespace cukiln::cli
