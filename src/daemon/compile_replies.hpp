// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "daemon/compile_run.hpp"
#include "daemon/counters.hpp"
#include "daemon/in_flight_compile.hpp"

namespace cukiln::daemon {

/// Counts the result of a run.
void count_run(DaemonCounters& counters, const RunResult& result);

/// Sends the result of `compile` to one of its waiters.
void reply_to_waiter(const InFlightCompile& compile, const RequestHandle& waiter,
                     const RunResult& result);

}  // namespace cukiln::daemon
