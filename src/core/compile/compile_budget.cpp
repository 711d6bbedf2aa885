// SPDX-License-Identifier: Apache-2.0
#include "core/compile/compile_budget.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "core/base/machine.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

using BudgetClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kCancelSlice{20};  // a flag cannot be waited for

}  // namespace

// One for each process: the compiles of a forked child are its own.
struct CompileBudget::State {
  struct Measured {
    unsigned jobs = 1;
    std::size_t workers = 1;  ///< to keep
    std::uint64_t memory_bytes = 0;
    std::string memory_from;
  };

  const pid_t pid = ::getpid();
  Mutex mutex;
  ConditionVariable changed;
  std::optional<Measured> measured CUKILN_GUARDED_BY(mutex);
  std::uint64_t used_bytes CUKILN_GUARDED_BY(mutex) = 0;
  std::size_t running CUKILN_GUARDED_BY(mutex) = 0;
  std::uint64_t ended CUKILN_GUARDED_BY(mutex) = 0;         ///< compiles, since the start
  std::list<std::uint64_t> queue CUKILN_GUARDED_BY(mutex);  ///< what each waiting one needs

  const Measured& limits(const Limits& given) CUKILN_REQUIRES(mutex) {
    if (!measured) {
      const bool needs_machine = given.jobs == 0 || given.memory_bytes == 0;
      Machine machine = needs_machine ? measure_machine() : Machine();
      Measured own;
      own.memory_bytes = given.memory_bytes != 0 ? given.memory_bytes : machine.memory_bytes;
      own.memory_from =
          given.memory_bytes != 0 ? "the setting memory" : std::move(machine.memory_from);
      const std::uint64_t fit = own.memory_bytes != 0 ? own.memory_bytes / kTypicalBytes
                                                      : std::numeric_limits<std::uint64_t>::max();
      const auto fitting = [&](unsigned most) {
        return static_cast<unsigned>(std::clamp<std::uint64_t>(fit, 1, std::max(most, 1U)));
      };
      own.jobs = given.jobs != 0 ? given.jobs : fitting(machine.cores);
      own.workers = fitting(own.jobs);
      measured = std::move(own);
    }
    return *measured;
  }

  /// A member of the limits.
  template <class T>
  T limit(const Limits& given, T Measured::*member) {
    const MutexLock lock(mutex);
    return limits(given).*member;
  }

  /// A caller's place in the queue. Constructed and destroyed with the mutex held.
  class Place {
   public:
    Place(State& state, std::uint64_t bytes) CUKILN_REQUIRES(state.mutex)
        : state_(state), at_(state.queue.insert(state.queue.end(), bytes)) {}
    ~Place() CUKILN_NO_THREAD_SAFETY_ANALYSIS {  // the analysis sees no lock here
      state_.queue.erase(at_);
      state_.changed.notify_all();  // the next one may be due
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    bool is_first() const CUKILN_NO_THREAD_SAFETY_ANALYSIS { return at_ == state_.queue.begin(); }

   private:
    State& state_;
    const std::list<std::uint64_t>::iterator at_;
  };

  bool fits(std::uint64_t bytes, const Limits& given) CUKILN_REQUIRES(mutex) {
    const std::uint64_t memory = limits(given).memory_bytes;
    return running == 0 || memory == 0 || (used_bytes <= memory && bytes <= memory - used_bytes);
  }
};

CompileBudget::CompileBudget(Limits limits)
    : limits_(limits), state_(std::make_unique<ProcessLocal<State>>()) {}

CompileBudget::~CompileBudget() = default;

CompileBudget::State& CompileBudget::state() { return state_->get(); }

unsigned CompileBudget::jobs() { return state().limit(limits_, &State::Measured::jobs); }

std::size_t CompileBudget::workers_to_keep() {
  return state().limit(limits_, &State::Measured::workers);
}

std::uint64_t CompileBudget::memory_bytes() {
  return state().limit(limits_, &State::Measured::memory_bytes);
}

std::string CompileBudget::memory_from() {
  return state().limit(limits_, &State::Measured::memory_from);
}

std::size_t CompileBudget::waiting() {
  State& own = state();
  const MutexLock lock(own.mutex);
  return own.queue.size();
}

CompileBudget::Share::~Share() {
  if (state_ == nullptr || state_->pid != ::getpid()) {
    return;
  }
  const MutexLock lock(state_->mutex);
  state_->used_bytes -= bytes_;
  --state_->running;
  ++state_->ended;
  state_->changed.notify_all();
}

Result<CompileBudget::Share> CompileBudget::admit(std::uint64_t bytes, const std::string& label,
                                                  std::chrono::milliseconds timeout,
                                                  CancelFlags cancelled) {
  State& own = state();
  MutexLock lock(own.mutex);
  State::Place place(own, bytes);
  const auto is_due = [&]() CUKILN_REQUIRES(own.mutex) {
    return place.is_first() && own.fits(bytes, limits_);
  };
  std::uint64_t seen = own.ended;
  auto deadline = BudgetClock::now() + timeout;
  while (!is_due()) {
    const auto now = BudgetClock::now();
    if (own.ended != seen) {
      seen = own.ended;
      deadline = now + timeout;
    }
    if (cancelled.is_set()) {
      return make_error(ErrorCode::timeout, "compiling {} was cancelled", label);
    }
    if (now >= deadline) {
      return make_error(ErrorCode::timeout,
                        "compiling {} waited {} ms for {} MiB of memory: {} compiles use {} of {} "
                        "MiB ({}); raise "
                        "CUKILN_MEMORY, or compile_timeout",
                        label, timeout.count(), bytes >> 20, own.running, own.used_bytes >> 20,
                        own.limits(limits_).memory_bytes >> 20, own.limits(limits_).memory_from);
    }
    const auto slice = cancelled.can_be_set() ? std::min(now + kCancelSlice, deadline) : deadline;
    own.changed.wait_until(lock, slice);
  }
  own.used_bytes += bytes;
  ++own.running;
  return Share(own, bytes);
}

}  // namespace cukiln
