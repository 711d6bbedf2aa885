// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "store/tiered_store.hpp"

namespace cukiln::ops {

/// All zero where there is no disk tier.
struct DiskUse {
  std::uint64_t max_bytes = 0;  ///< the cap of the live data
  std::uint64_t wal_bytes = 0;
  std::uint64_t free_disk_bytes = 0;
  std::uint64_t reserve_bytes = 0;  ///< kept to evict on a full disk
  std::uint64_t lock_timeouts = 0;  ///< of this process's writes
};
DiskUse disk_use(TieredStore& store);

}  // namespace cukiln::ops
