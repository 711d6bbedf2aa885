#include "remote/breaker.hpp"

#include <algorithm>
#include <bitset>
#include <random>

namespace cukiln {

namespace {

using std::chrono::milliseconds;

constexpr int kInARow = 3;
constexpr int kWindow = 20;
constexpr std::uint32_t kWindowMask = (1u << kWindow) - 1;
constexpr milliseconds kFirstPause{30'000};
constexpr milliseconds kLongestPause{300'000};

/// Ten thousand hosts that lost the same server do not come back in the same second.
milliseconds with_jitter(milliseconds pause) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return milliseconds(std::uniform_int_distribution<std::int64_t>(pause.count() * 8 / 10,
                                                                  pause.count() * 12 / 10)(random));
}

}  // namespace

bool Breaker::allows(SteadyTime now) {
  const std::lock_guard lock(mutex_);
  if (forbidden_ || now < open_until_) {
    return false;
  }
  if (pause_.count() == 0) {
    return true;
  }
  if (std::exchange(trying_, true)) {
    return false;
  }
  turn(State::trying);
  return true;
}

void Breaker::succeeded() {
  const std::lock_guard lock(mutex_);
  recent_ = trying_ ? 0 : (recent_ << 1) & kWindowMask;
  known_ = trying_ ? 0 : std::min(known_ + 1, kWindow);
  trying_ = false;
  in_a_row_ = 0;
  if (pause_.count() != 0) {
    turn(State::closed);
  }
  pause_ = milliseconds(0);
}

bool Breaker::failed(RemoteStatus why, SteadyTime now) {
  const std::lock_guard lock(mutex_);
  if (why == RemoteStatus::denied) {
    if (std::exchange(forbidden_, true)) {
      return false;
    }
    turn(State::forbidden);
    return true;
  }
  const bool at_once = why == RemoteStatus::timeout || why == RemoteStatus::untrusted;
  in_a_row_ += at_once ? kInARow : 1;
  recent_ = ((recent_ << 1) | 1) & kWindowMask;
  known_ = std::min(known_ + 1, kWindow);
  const auto failures = static_cast<int>(std::bitset<kWindow>(recent_).count());
  if (!trying_ && in_a_row_ < kInARow && (known_ < kWindow || failures * 2 <= kWindow)) {
    return false;
  }
  const bool was_closed = pause_.count() == 0 || trying_;
  if (was_closed) {  // those that were on their way when it opened add nothing
    open(now);
  }
  return was_closed;
}

void Breaker::open(SteadyTime now) {
  turn(State::open);
  pause_ = pause_.count() == 0 ? kFirstPause : std::min(pause_ * 2, kLongestPause);
  open_until_ = now + with_jitter(pause_);
  trying_ = false;
  in_a_row_ = 0;
  recent_ = 0;
  known_ = 0;
}

Breaker::State Breaker::state(SteadyTime now) const {
  const std::lock_guard lock(mutex_);
  return forbidden_            ? State::forbidden
         : now < open_until_   ? State::open
         : pause_.count() != 0 ? State::trying
                               : State::closed;
}

std::array<std::uint64_t, Breaker::kStates> Breaker::turns() const {
  const std::lock_guard lock(mutex_);
  return turns_;
}

const char* name_of(Breaker::State state) noexcept {
  switch (state) {
    case Breaker::State::closed: return "closed";
    case Breaker::State::open: return "open";
    case Breaker::State::trying: return "trying";
    case Breaker::State::forbidden: return "forbidden";
  }
  return "unknown";
}

std::chrono::seconds Breaker::pause() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::duration_cast<std::chrono::seconds>(pause_);
}

}  // namespace cukiln
