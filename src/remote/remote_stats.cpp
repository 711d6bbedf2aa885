// SPDX-License-Identifier: Apache-2.0
#include "remote/remote_stats.hpp"

namespace cukiln {

void RemoteTraffic::add(RemoteStatus how, std::chrono::microseconds time) noexcept {
  ++ended[static_cast<std::size_t>(how)];
  took += time;
  for (std::size_t i = 0; i < kBoundsMs.size(); ++i) {
    within[i] += time <= std::chrono::milliseconds(kBoundsMs[i]) ? 1 : 0;
  }
}

}  // namespace cukiln
