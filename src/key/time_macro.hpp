// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/bytes.hpp"

namespace cukiln {

/// The first of __TIMESTAMP__, __TIME__ and __DATE__ that `text` spells, also in comments and
/// strings, and also with line splices in it (a backslash or `??/` before the line's end). Empty:
/// none. A wrong yes costs one compile each time, a wrong no an old date. A name made by token
/// pasting (`##`) is not found.
std::string_view find_time_macro(ByteView text);

}  // namespace cukiln
