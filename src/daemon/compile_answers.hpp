// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "daemon/compile_run.hpp"
#include "daemon/counters.hpp"
#include "daemon/in_flight_compile.hpp"

namespace cukiln::daemon {

/// Counts how a run ended.
void count_run(DaemonCounters& counters, const RunResult& result);

/// Tells one of those that wait for `compile` what came of it.
void answer_waiter(const InFlightCompile& compile, const RequestHandle& waiter,
                   const RunResult& result);

}  // namespace cukiln::daemon
