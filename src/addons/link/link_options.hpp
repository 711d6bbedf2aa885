// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <cukiln/module_spec.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// Returns nvJitLink's options for a link of parts that NVRTC compiled with these arguments: those
/// of code generation, which is done, or done again, in the link.
std::vector<std::string> link_options(LinkMode mode, Target target,
                                      const std::vector<std::string>& arguments);

/// `none`, `rdc` or `lto`.
const char* name_of(LinkMode mode) noexcept;

}  // namespace cukiln
