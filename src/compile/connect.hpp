// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Connects to the socket at `path`, where a service manager starts a worker for each connection
/// (`cukiln-worker.socket`). Never waits. Threads: safe. Errors: not_found (no socket there),
/// invalid_argument (another user than root and this one listens there, who would get the sources
/// and could return any cubin), io.
Result<UniqueFd> connect_to_worker(const std::string& path);

}  // namespace cukiln
