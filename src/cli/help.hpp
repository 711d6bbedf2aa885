// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/command.hpp"
#include "cli/terminal.hpp"

namespace cukiln::cli {

std::string general_help(const CLI::App& app, const Commands& commands, const Terminal& terminal);
std::string command_help(const CLI::App& app, const Command& command, const Terminal& terminal);

/// `-I DIR`, `--arch TARGET`: as help and completion show an option.
std::string spelling_of(const CLI::Option& option);

}  // namespace cukiln::cli
