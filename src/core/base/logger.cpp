// SPDX-License-Identifier: Apache-2.0
#include "core/base/logger.hpp"

#include "core/base/call_host.hpp"

namespace cukiln {

void Logger::deliver(LogLevel level, fmt::string_view format,
                     fmt::format_args args) const noexcept {
  call_host([&] { sink_(level, fmt::vformat(format, args)); });
}

}  // namespace cukiln
