// SPDX-License-Identifier: Apache-2.0
#include "base/logger.hpp"

namespace cukiln {

void Logger::deliver(LogLevel level, fmt::string_view format,
                     fmt::format_args args) const noexcept {
  try {
    sink_(level, fmt::vformat(format, args));
  } catch (...) {  // nothing that was to be said is worth the work that it was said about
  }
}

}  // namespace cukiln
