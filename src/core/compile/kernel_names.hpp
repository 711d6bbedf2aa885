// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.hpp"

namespace cukiln {

/// Appended to the name of a kernel template: `fill<...>`.
inline constexpr std::string_view kTemplateMark = "<...>";

/// Finds the `__global__` functions declared in a text, in order, each once, templates as
/// `fill<...>`. A heuristic for error messages: it expands no macros and follows no includes.
std::vector<std::string> kernels_in(ByteView source);

/// Returns the name expressions that NVRTC could not resolve, according to its log, in order, each
/// once, in the canonical spelling.
std::vector<std::string> unresolved_names(ByteView log);

}  // namespace cukiln
