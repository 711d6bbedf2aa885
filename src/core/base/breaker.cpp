// SPDX-License-Identifier: Apache-2.0
#include "core/base/breaker.hpp"

#include <algorithm>
#include <bitset>
#include <cassert>

#include "core/base/fork_gate.hpp"

namespace cukiln {

namespace {

std::uint32_t mask_of(int window) {
  return window >= Breaker::kMaxWindow ? ~std::uint32_t{0} : (std::uint32_t{1} << window) - 1;
}

}  // namespace

bool Breaker::allows(Time now) {
  const ForkSafeLock lock(mutex_);
  if (!opened_) {
    return true;
  }
  if (now < open_until_ || tries(now)) {
    return false;
  }
  trial_ = now;
  turn(State::trying);
  return true;
}

void Breaker::succeeded() {
  const ForkSafeLock lock(mutex_);
  recent_ = opened_ ? 0 : (recent_ << 1) & mask_of(options_.window);
  known_ = opened_ ? 0 : std::min(known_ + 1, options_.window);
  in_a_row_ = 0;
  trial_ = Time();
  backoff_.reset();
  brief_.reset();
  if (opened_) {
    turn(State::closed);
    opened_ = false;
  }
}

bool Breaker::failed(Time now, int weight, Cost cost) {
  assert(weight > 0);
  const ForkSafeLock lock(mutex_);
  const bool was_trial = trial_ != Time();
  if (opened_ && !was_trial) {
    return false;  // sent before the breaker opened: it was counted by the one that opened it
  }
  in_a_row_ += weight;
  recent_ = ((recent_ << 1) | 1) & mask_of(options_.window);
  known_ = std::min(known_ + 1, options_.window);
  const auto failures = static_cast<int>(std::bitset<kMaxWindow>(recent_).count());
  const bool too_many =
      options_.window > 0 && known_ >= options_.window && failures * 2 > options_.window;
  if (!was_trial && in_a_row_ < options_.in_a_row && !too_many) {
    return false;
  }
  open(now, cost);
  return true;
}

void Breaker::open(Time now, Cost cost) {
  turn(State::open);
  Backoff& backoff = cost == Cost::nothing ? brief_ : backoff_;
  open_until_ = now + backoff.next();
  pause_ = backoff.pause();
  opened_ = true;
  trial_ = Time();
  in_a_row_ = 0;
  recent_ = 0;
  known_ = 0;
}

Breaker::State Breaker::state(Time now) const {
  const ForkSafeLock lock(mutex_);
  return !opened_ ? State::closed : now < open_until_ ? State::open : State::trying;
}

std::chrono::milliseconds Breaker::pause() const {
  const ForkSafeLock lock(mutex_);
  return pause_;
}

std::array<std::uint64_t, Breaker::kStates> Breaker::turns() const {
  const ForkSafeLock lock(mutex_);
  return turns_;
}

}  // namespace cukiln
