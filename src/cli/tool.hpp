// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/bytes.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// What another program said.
struct ToolOutput {
  int exit_code = 0;
  std::string text;  ///< stdout and stderr together
};

/// Runs `program` (a path, or a name that PATH has) on `input`: every argument `{}` becomes the
/// name of a file with those bytes, which exists only while the program runs. Errors: not_found (no
/// such program), io.
Result<ToolOutput> run_tool(const std::string& program, std::vector<std::string> arguments,
                            ByteView input);

}  // namespace cukiln::cli
