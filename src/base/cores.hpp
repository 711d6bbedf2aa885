// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln {

/// The number of processors in this process's affinity mask, at least one: under taskset or in a
/// container fewer than the machine has. Takes one system call; the standard library reads files in
/// /sys.
unsigned usable_cores() noexcept;

}  // namespace cukiln
