// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Returns a variable that an application would inherit; empty if it is not set.
std::string inherited_variable(std::string_view name);

/// Runs an application with some environment variables set and waits for it. Its output is not
/// changed, except that `output_to_stderr` keeps stdout for the JSON document. Ctrl-C ends the
/// application only. Returns the exit code, or 128 + the signal that ended the application. Errors:
/// not_found.
Result<int> run_application(std::vector<std::string> command,
                            const std::vector<std::pair<std::string, std::string>>& variables,
                            bool output_to_stderr);

}  // namespace cukiln::cli
