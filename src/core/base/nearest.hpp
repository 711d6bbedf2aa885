// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cukiln {

/// The candidate with the smallest edit distance to `given`, for "did you mean …?"; empty if none
/// is within a third of its length.
std::string nearest(const std::string& given, const std::vector<std::string>& candidates);

}  // namespace cukiln
