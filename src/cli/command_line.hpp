// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/verb.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// The parser with every verb and the global options, and what it said.
class CommandLine {
 public:
  CommandLine();

  /// Fills the options. Errors: invalid_argument, which says what was meant.
  Result<void> parse(std::vector<std::string> arguments);

  const GlobalOptions& options() const noexcept { return options_; }
  /// The verb that was asked for; null: none.
  Verb* verb() const noexcept { return verb_; }
  const CLI::App& app() const noexcept { return app_; }
  const Verbs& verbs() const noexcept { return verbs_; }

 private:
  std::vector<std::string> verb_names() const;
  /// Where the verb is in the arguments; their number when it is not there.
  std::size_t find_verb(const std::vector<std::string>& arguments) const;
  Result<void> check_leftovers() const;

  CLI::App app_;
  GlobalOptions options_;
  Verbs verbs_;
  Verb* verb_ = nullptr;
};

}  // namespace cukiln::cli
