// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/context.hpp"

namespace cukiln::cli {

/// Prints the records of starts (core/loader/start_record.hpp), the last one with all its modules,
/// and what to do about each miss. One that is torn, or no record, is left out.
void print_starts(const Context& context, const std::vector<std::string>& records);

}  // namespace cukiln::cli
