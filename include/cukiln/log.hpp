#pragma once

#include <functional>
#include <string_view>

namespace cukiln {

enum class LogLevel { error, warn, info, debug };

/// Where messages go. Empty (the default) is silence: a library says nothing unless asked.
/// Threads: called from any thread that calls into cukiln, also concurrently. It must not throw and
/// must not call back into cukiln.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;

}  // namespace cukiln
