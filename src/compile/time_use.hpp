// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "key/compile_request.hpp"
#include "key/file_server.hpp"

namespace cukiln {

struct TimeUse {
  std::string macro;  ///< `__TIME__`
  std::string place;  ///< the flag, or the file's real path
};

/// Why a request is never stored: where its arguments, its sources or a header that they include
/// spell a macro of the compile's date. Headers are followed as far as `includes_in` does, and not
/// into the toolkit, which has none. Nothing is compiled.
std::optional<TimeUse> find_time_use(const CompileRequest& request, FileServer& files);

}  // namespace cukiln
