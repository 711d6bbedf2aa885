// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cukiln {

/// The candidate with the smallest edit distance to `given`, for "did you mean …?", if it is within
/// a third of its length, and two edits or more leave the first letter; else one that begins with
/// two thirds of it; empty if there is none.
std::string nearest(const std::string& given, const std::vector<std::string>& candidates);

}  // namespace cukiln
