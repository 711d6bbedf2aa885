// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/context.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Checks, before work begins, that its result can be written to the file `path`; with
/// `may_be_folder`, also into the existing folder `path`. Errors: invalid_argument (the file's
/// folder does not exist, or it is a folder), io.
Result<void> check_output(const std::string& path, bool may_be_folder = false);

/// Returns the exit code for an error of `check_output`: invalid_argument is an error of usage.
Exit exit_of_output(const Error& error) noexcept;

}  // namespace cukiln::cli
