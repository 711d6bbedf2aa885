// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace cukiln {

/// Ends the name of a template.
inline constexpr std::string_view kTemplateMark = "<...>";

/// The `__global__` functions that a text spells, in order, each once; those of a template as
/// `fill<...>`. A heuristic for messages: macros and included files are not looked into.
std::vector<std::string> kernels_in(ByteView source);

/// The name expressions that NVRTC's log says it could not resolve, in order, each once.
std::vector<std::string> unresolved_names(ByteView log);

}  // namespace cukiln
