// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/terminal.hpp"

namespace cukiln::cli {

/// Returns the text of `cukiln --help`.
std::string general_help(const CLI::App& app, const Commands& commands, const Terminal& terminal);
/// Returns the text of `cukiln COMMAND --help`.
std::string command_help(const CLI::App& app, const Command& command, const Terminal& terminal);

/// The options that help and the shells list: neither operands nor hidden ones, which have no
/// group.
std::vector<const CLI::Option*> listed_options(const CLI::App& app);
/// The spellings of an option: `-I`, `--include-path`.
std::vector<std::string> names_of(const CLI::Option& option);
/// The placeholder of an option's value, `DIR`; empty if it has none.
std::string value_of(const CLI::Option& option);
/// Returns an option as help shows it: `-I, --include-path DIR`.
std::string spelling_of(const CLI::Option& option);

}  // namespace cukiln::cli
