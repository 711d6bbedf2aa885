// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

namespace cukiln {
inline namespace v0 {

enum class LogLevel { error, warn, info, debug };

/// Where messages go. Empty (the default) is silence: a library says nothing unless asked.
/// Threads: called from any thread that calls into cukiln, also concurrently. It must not
/// call back into cukiln. What it throws is caught, and costs that message. Forks: see
/// KernelLoader.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;

}  // namespace v0
}  // namespace cukiln
