// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cukiln {

/// The candidate that `given` was probably meant to be; empty: none comes near.
std::string nearest(const std::string& given, const std::vector<std::string>& candidates);

}  // namespace cukiln
