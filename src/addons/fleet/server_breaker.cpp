// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/server_breaker.hpp"

#include <algorithm>

namespace cukiln {

bool ServerBreaker::allows(SteadyTime now) { return !forbidden_.load() && breaker_.allows(now); }

bool ServerBreaker::failed(RemoteStatus why, SteadyTime now, bool is_restarting) {
  if (why == RemoteStatus::denied) {
    return !forbidden_.exchange(true);
  }
  const bool costs_all =
      why == RemoteStatus::timeout || why == RemoteStatus::untrusted || why == RemoteStatus::hung;
  return breaker_.failed(now, costs_all ? kInARow : 1,
                         is_restarting ? Breaker::Cost::nothing : Breaker::Cost::usual);
}

ServerBreaker::State ServerBreaker::state(SteadyTime now) const {
  if (forbidden_.load()) {
    return State::forbidden;
  }
  switch (breaker_.state(now)) {
    case Breaker::State::open: return State::open;
    case Breaker::State::trying: return State::trying;
    case Breaker::State::closed: break;
  }
  return State::closed;
}

std::chrono::seconds ServerBreaker::pause() const {
  return std::chrono::duration_cast<std::chrono::seconds>(breaker_.pause());
}

std::array<std::uint64_t, ServerBreaker::kStates> ServerBreaker::turns() const {
  std::array<std::uint64_t, kStates> all{};
  const auto counted = breaker_.turns();
  std::copy(counted.begin(), counted.end(), all.begin());
  all.back() = forbidden_.load() ? 1 : 0;
  return all;
}

const char* name_of(ServerBreaker::State state) noexcept {
  switch (state) {
    case ServerBreaker::State::closed: return "closed";
    case ServerBreaker::State::open: return "open";
    case ServerBreaker::State::trying: return "trying";
    case ServerBreaker::State::forbidden: return "forbidden";
  }
  return "unknown";
}

}  // namespace cukiln
