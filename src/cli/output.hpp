// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/context.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Checks, before work begins, that its result can be written at `path`, a file or an existing
/// folder. Errors: invalid_argument (the file's folder does not exist), io.
Result<void> check_output(const std::string& path);

/// Returns the exit code for an error of `check_output`. A missing folder is an error of usage.
Exit exit_of_output(const Error& error) noexcept;

}  // namespace cukiln::cli
