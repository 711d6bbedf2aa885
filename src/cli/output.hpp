// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/context.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Whether a file can be written at `path`, asked before the work whose result it is for. A folder
/// that is there counts. Errors: invalid_argument (there is no folder to write it in), io.
Result<void> check_output(const std::string& path);

/// How its error ends a command: a folder that is not there is a mistake in the command line.
Exit exit_of_output(const Error& error) noexcept;

}  // namespace cukiln::cli
