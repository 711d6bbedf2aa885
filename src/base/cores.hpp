// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln {

/// The processors that this process may run on, at least one: fewer than the machine has under
/// taskset or in a container. One system call, where the standard library reads files in /sys.
unsigned usable_cores() noexcept;

}  // namespace cukiln
