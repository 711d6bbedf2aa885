// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/bytes.hpp"

namespace cukiln {

/// The text without its line splices (a backslash or `??/` before the end of a line). Nothing if
/// none of them divides a name.
std::optional<std::string> join_split_names(ByteView text);

/// The first of __TIMESTAMP__, __TIME__ and __DATE__ that is spelt in `text`; empty if none is.
/// Comments and strings are searched too, and names that are split by line splices (a backslash or
/// `??/` before the end of a line) are found; a name made by token pasting (`##`) is not. A false
/// positive costs a compile at each use; a false negative stores an old date.
std::string_view find_time_macro(ByteView text);

}  // namespace cukiln
