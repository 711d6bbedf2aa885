// SPDX-License-Identifier: Apache-2.0
#include "core/base/backoff.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace cukiln {

using std::chrono::milliseconds;

milliseconds Backoff::next() {
  pause_ = pause_.count() == 0 ? limits_.first : std::min(pause_ * 2, limits_.most);
  const auto spread =
      static_cast<std::int64_t>(std::lround(static_cast<double>(pause_.count()) * limits_.jitter));
  if (spread == 0) {
    return pause_;
  }
  thread_local std::minstd_rand random{std::random_device{}()};
  return pause_ +
         milliseconds(std::uniform_int_distribution<std::int64_t>(-spread, spread)(random));
}

}  // namespace cukiln
