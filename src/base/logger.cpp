// SPDX-License-Identifier: Apache-2.0
#include "base/logger.hpp"

namespace cukiln {

void Logger::deliver(LogLevel level, fmt::string_view format,
                     fmt::format_args args) const noexcept {
  try {
    sink_(level, fmt::vformat(format, args));
  } catch (...) {  // a lost message must not fail the operation that logs it
  }
}

}  // namespace cukiln
