// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln::worker {

/// The time of every clock while they are fixed, and the mtime of every served file: 2000-01-01
/// 00:00:00 UTC. It is in the past, so that a wait with a deadline ends instead of hanging.
inline constexpr std::int64_t kFixedInstantS = 946684800;

/// Fixes every clock of this process to one instant, the time zone to UTC, and the pid to a value
/// that all workers share. NVRTC reads them in every compile, and no result may depend on them.
void fix_clock();
/// Undoes `fix_clock`.
void release_clock();

/// While it exists, this thread sees the real clock, for the worker's own calls during a compile.
class RealClock {
 public:
  RealClock() noexcept;
  ~RealClock();
  RealClock(const RealClock&) = delete;
  RealClock& operator=(const RealClock&) = delete;
};

}  // namespace cukiln::worker
