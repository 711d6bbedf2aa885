// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/key/compile_request.hpp"
#include "core/key/file_server.hpp"

namespace cukiln {

/// A use of a date macro.
struct TimeUse {
  std::string macro;  ///< `__TIME__`
  std::string place;  ///< the flag, or the file's real path
};

/// Finds the first date macro in a request's arguments, its sources or the headers that they
/// include: the reason why its result is never stored. Includes are found by `includes_in`. The
/// toolkit's headers, which have none, are not searched. Compiles nothing.
std::optional<TimeUse> find_time_use(const CompileRequest& request, FileServer& files);

}  // namespace cukiln
