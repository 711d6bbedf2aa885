// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/ops/ops_source.hpp"

namespace cukiln::ops {

/// Prometheus' text format, version 0.0.4. What was not measured is not there; no label holds a
/// key, a path, a kernel or a user.
/// `compiler`: `nvrtc 13.0.88`; empty where nobody compiles.
std::string metrics_text(const wire::DaemonSnapshot& state, TieredStore& store,
                         const RemoteReport& remotes, std::string_view compiler);

}  // namespace cukiln::ops
