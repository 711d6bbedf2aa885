// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "addons/daemon/ops/exposition.hpp"
#include "addons/daemon/protocol/daemon_messages.hpp"

namespace cukiln::ops {

/// Adds Prometheus' standard process metrics.
void add_process(Exposition& out, const wire::DaemonSnapshot& state);

}  // namespace cukiln::ops
