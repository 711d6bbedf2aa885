// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/base/bytes.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// The result of another program.
struct ToolOutput {
  int exit_code = 0;
  std::string text;  ///< stdout and stderr together
};

/// Runs `program`, a path or a name in PATH, on `input`: every argument `{}` becomes the path of a
/// file with these bytes, which exists only while the program runs. Waits for its end. Errors:
/// not_found (there is no such program), io.
Result<ToolOutput> run_tool(const std::string& program, std::vector<std::string> arguments,
                            ByteView input);

}  // namespace cukiln::cli
