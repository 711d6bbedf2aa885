// SPDX-License-Identifier: Apache-2.0
#include "core/loader/recorder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <nlohmann/json.hpp>

#include "core/base/file.hpp"
#include "core/base/file_size_limit.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "core/loader/module_json.hpp"

namespace cukiln {

void Recorder::note(const ModuleSpec& spec, Target target) {
  if (path_.empty()) {
    return;
  }
  const nlohmann::json module = module_json(spec, target);
  if (module.is_null()) {
    return;  // the compile reports what is wrong
  }
  const std::string line =
      module.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (const std::string error = append(line); !error.empty()) {
    log_.warn("requests cannot be recorded in {}: {}", path_, error);
  }
}

/// Returns the reason of a failure the first time, else an empty string.
std::string Recorder::append(const std::string& line) {
  const ForkSafeLock lock(mutex_);
  if (failed_ || !known_.insert(hash_of(line)).second) {
    return {};
  }
  // Opened each time, because a host may close descriptors that it does not know. A write with
  // O_APPEND is atomic.
  const UniqueFd file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  const FileSizeLimitGuard guard;
  if (!file || ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    failed_ = true;
    return errno_text(errno);
  }
  return {};
}

}  // namespace cukiln
