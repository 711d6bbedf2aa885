// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

namespace cukiln {
inline namespace v0 {

enum class LogLevel { error, warn, info, debug };

/// Receives log messages. Empty (the default): nothing is logged. It must not call back into
/// cukiln. An exception is caught, and its message is lost. Threads: called from any thread that
/// calls into cukiln, also concurrently. Fork: see KernelLoader.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;

}  // namespace v0
}  // namespace cukiln
