// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln::worker {

/// What every clock says while it is fixed, 2000-01-01 00:00:00 UTC in seconds, and also the age of
/// every file that is served. In the past, so that a wait with a deadline ends and never hangs.
inline constexpr std::int64_t kFixedInstantS = 946684800;

/// From now on every clock of this process says one instant, the time zone is UTC, and the
/// process's number is one that all workers share. NVRTC asks for them in every compile.
void fix_clock();
/// Ends `fix_clock`.
void release_clock();

/// This thread's own calls, made in the middle of a compile, see the real clock while this lives.
class RealClock {
 public:
  RealClock() noexcept;
  ~RealClock();
  RealClock(const RealClock&) = delete;
  RealClock& operator=(const RealClock&) = delete;
};

}  // namespace cukiln::worker
