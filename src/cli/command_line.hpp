// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// The parser of the command line, with every command and the global options.
class CommandLine {
 public:
  CommandLine();

  /// Parses the arguments into the options of the chosen command. Call it once. Errors:
  /// invalid_argument, with the nearest known command or option.
  Result<void> parse(std::vector<std::string> arguments);

  const GlobalOptions& options() const noexcept { return options_; }
  /// The command that was given, or null.
  Command* command() const noexcept { return command_; }
  const CLI::App& app() const noexcept { return app_; }
  const Commands& commands() const noexcept { return commands_; }

 private:
  std::vector<std::string> command_names() const;
  /// Returns the index of the command, or arguments.size() if there is none.
  std::size_t find_command(const std::vector<std::string>& arguments) const;
  Result<void> check_leftovers() const;

  CLI::App app_;
  GlobalOptions options_;
  Commands commands_;
  Command* command_ = nullptr;
};

}  // namespace cukiln::cli
