// SPDX-License-Identifier: Apache-2.0
#include "base/cores.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace cukiln {

unsigned usable_cores() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&allowed)));
  }
  return std::max(1u, std::thread::hardware_concurrency());  // more processors than cpu_set_t holds
}

}  // namespace cukiln
