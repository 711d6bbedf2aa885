// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cukiln/kernel_table.hpp>

namespace cukiln::testing {

/// A table that a test fills, as a loader does.
struct WritableKernelTable : KernelTable {
  using KernelTable::add;
  using KernelTable::remove;
  using KernelTable::set_name;
};

}  // namespace cukiln::testing
