// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/terminal.hpp"
#include "cli/verb.hpp"

namespace cukiln::cli {

std::string general_help(const CLI::App& app, const Verbs& verbs, const Terminal& terminal);
std::string verb_help(const CLI::App& app, const Verb& verb, const Terminal& terminal);

/// `-I DIR`, `--arch TARGET`: as help and completion show an option.
std::string spelling_of(const CLI::Option& option);

}  // namespace cukiln::cli
