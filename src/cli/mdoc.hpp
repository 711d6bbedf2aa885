// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/command.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Writes a manual page in mdoc(7): the text of the file `frame`, with `@VERSION@`, `@OPTIONS@` and
/// `@COMMANDS@` replaced by the version, and the help of the options and commands. The build calls
/// it, so that cukiln(1) and `cukiln help` cannot differ. Errors: not_found, io.
Result<void> write_manual(const CLI::App& app, const Commands& commands, const std::string& frame,
                          const std::string& page);

}  // namespace cukiln::cli
