// SPDX-License-Identifier: Apache-2.0
// TMA and the tensor core as units that perform late what was issued to them.
#include <algorithm>

#include <sched.h>

#include "emulator/cta.hpp"

namespace cukiln::emulator {
namespace {

constexpr u32 kMostSteps = 160;  // by which an operation is late; a stage takes a few dozen
// Of those that may overtake each other, one in eight is performed last of all: once every thread
// waits and nothing else is left to do.
constexpr u32 kOneIsLast = 8;
constexpr u64 kLast = ~u64{0};

}  // namespace

struct AsyncUnit::Issued {
  Operation operation;
  Thread* by;
  Index3 block;
  u64 due;  // a number of steps
  Issued* before = nullptr;
};

AsyncUnit::AsyncUnit(Cluster& cluster, Order order, u32 seed)
    : cluster_(cluster), order_(order), seed_(seed), random_(seed * 2 + static_cast<u32>(order)) {
  if (seed_ != 0) {
    thread_ = std::thread([this] { run(); });
  }
}

AsyncUnit::~AsyncUnit() {
  if (thread_.joinable()) {
    ends_.store(true);
    pushes_.fetch_add(1);
    futex_wake_all(&pushes_);
    thread_.join();
  }
}

std::unique_ptr<AsyncUnit::Issued> AsyncUnit::made(Operation operation) const {
  return std::make_unique<Issued>(Issued{std::move(operation), self, blockIdx, 0});
}

void AsyncUnit::issue(Operation operation) {
  step();
  if (seed_ == 0) {
    operation();
    return;
  }
  left_.fetch_add(1, std::memory_order_relaxed);
  Issued* const last = made(std::move(operation)).release();
  last->before = issued_.load(std::memory_order_relaxed);
  while (!issued_.compare_exchange_weak(last->before, last, std::memory_order_release,
                                        std::memory_order_relaxed)) {
  }
  pushes_.fetch_add(1, std::memory_order_relaxed);
  futex_wake_all(&pushes_);
}

void AsyncUnit::arrive_later(Operation arrival) {
  if (seed_ == 0) {
    arrival();
    return;
  }
  left_.fetch_add(1, std::memory_order_relaxed);
  arrivals_.push_back(made(std::move(arrival)));
  set_due(*arrivals_.back(), true);
}

void AsyncUnit::set_due(Issued& issued, bool may_be_last) {
  if (may_be_last && random_() % kOneIsLast == 0) {
    issued.due = kLast;
    last_.fetch_add(1, std::memory_order_relaxed);
  } else {
    issued.due = cluster_.steps.load(std::memory_order_relaxed) + random_() % kMostSteps;
  }
}

// Takes over what was issued since the last time.
void AsyncUnit::collect() {
  const std::size_t from = waiting_.size();
  for (Issued* last = issued_.exchange(nullptr, std::memory_order_acquire); last != nullptr;) {
    Issued* const before = last->before;
    set_due(*last, order_ == Order::any);
    waiting_.emplace_back(last);
    last = before;
  }
  std::reverse(waiting_.begin() + static_cast<std::ptrdiff_t>(from), waiting_.end());
}

void AsyncUnit::perform(std::vector<std::unique_ptr<Issued>>& from, std::size_t at) {
  const std::unique_ptr<Issued> issued = std::move(from[at]);
  from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
  self = issued->by;
  blockIdx = issued->block;
  // Before it happens, because a thread that sees it may end the kernel; `busy_` covers the time
  // between.
  if (issued->due == kLast) last_.fetch_sub(1, std::memory_order_relaxed);
  left_.fetch_sub(1, std::memory_order_relaxed);
  issued->operation();
}

// Performs one operation that is due before `now`, if there is one.
bool AsyncUnit::perform_due(u64 now) {
  std::vector<std::size_t> due;
  const auto& any = order_ == Order::any ? waiting_ : arrivals_;
  for (std::size_t i = 0; i < any.size(); ++i) {
    if (any[i]->due <= now) due.push_back(i);
  }
  const bool next = order_ == Order::in_order && !waiting_.empty() && waiting_.front()->due <= now;
  if (next && (due.empty() || random_() % 2 == 0)) {
    perform(waiting_, 0);
  } else if (!due.empty()) {
    perform(order_ == Order::any ? waiting_ : arrivals_, due[random_() % due.size()]);
  } else {
    return false;
  }
  return true;
}

void AsyncUnit::run() {
  for (;;) {
    const u32 pushes = pushes_.load(std::memory_order_relaxed);
    collect();
    if (waiting_.empty() && arrivals_.empty()) {
      if (ends_.load()) {
        return;
      }
      futex_wait(&pushes_, pushes);
      continue;
    }
    busy_.store(true, std::memory_order_relaxed);
    const u64 now = cluster_.steps.load(std::memory_order_relaxed);
    if (!perform_due(now) && all_wait(cluster_)) {
      const auto units = cluster_.units();
      const bool only_last = std::all_of(units.begin(), units.end(),
                                         [](const AsyncUnit* unit) { return unit->only_last(); });
      perform_due(only_last ? kLast : kLast - 1);
    }
    busy_.store(false, std::memory_order_relaxed);
    sched_yield();
  }
}

}  // namespace cukiln::emulator
