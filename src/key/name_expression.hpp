// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <cukiln/name_expression.hpp>

namespace cukiln {

/// Returns what NVRTC gets for a canonical spelling: `&ns::k<float, 4>`. Kernels may be named
/// with and without `&`, and give one cubin; variables that are no arrays only with it. Anything
/// but a plain name is returned as it is.
std::string address_expression(const std::string& canonical);

}  // namespace cukiln
