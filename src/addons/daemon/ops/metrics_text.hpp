// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "addons/daemon/ops/ops_source.hpp"

namespace cukiln::ops {

/// All metrics in Prometheus' text format, version 0.0.4. A metric that was not measured is left
/// out. Labels have few values: none is a key, a path, a kernel or a user.
/// `compiler`: `nvrtc 13.0.88`, or empty if there is no compiler.
std::string metrics_text(const wire::DaemonSnapshot& state, TieredStore& store,
                         const RemoteReport& remotes, std::string_view compiler);

}  // namespace cukiln::ops
