// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/loader/module_request.hpp"

namespace cukiln {

/// Returns nvJitLink's options for a link of parts that NVRTC compiled with these arguments: those
/// of code generation, which is done, or done again, in the link.
std::vector<std::string> link_options(LinkMode mode, Target target,
                                      const std::vector<std::string>& arguments);

/// Adds to a request that is complete otherwise what makes parts of its sources, and the objects of
/// its spec. Errors: invalid_argument (an object without relocatable code), not_found, io.
Result<void> add_link(const ModuleSpec& spec, LinkMode mode, const Toolchain& linker,
                      ModuleRequest& out);

}  // namespace cukiln
