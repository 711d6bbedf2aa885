// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// The parser with every command and the global options, and what it said.
class CommandLine {
 public:
  CommandLine();

  /// Fills the options. Errors: invalid_argument, which says what was meant.
  Result<void> parse(std::vector<std::string> arguments);

  const GlobalOptions& options() const noexcept { return options_; }
  /// The command that was asked for; null: none.
  Command* command() const noexcept { return command_; }
  const CLI::App& app() const noexcept { return app_; }
  const Commands& commands() const noexcept { return commands_; }

 private:
  std::vector<std::string> command_names() const;
  /// Where the command is in the arguments; their number when it is not there.
  std::size_t find_command(const std::vector<std::string>& arguments) const;
  Result<void> check_leftovers() const;

  CLI::App app_;
  GlobalOptions options_;
  Commands commands_;
  Command* command_ = nullptr;
};

}  // namespace cukiln::cli
