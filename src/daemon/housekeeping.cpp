// SPDX-License-Identifier: Apache-2.0
#include "daemon/housekeeping.hpp"

#include <fmt/format.h>

#include <chrono>

#include "base/clock.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::chrono::seconds kEvery{60};

bool is_over(const std::future<void>& running) {
  return !running.valid() || running.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

Housekeeping::Housekeeping(EventLoop& loop, const ServiceManager& manager)
    : manager_(manager), every_minute_(loop, [this] { maintain(); }) {}

void Housekeeping::begin() {
  if (maintain_) {
    every_minute_.set_after(kEvery);
  }
}

void Housekeeping::maintain() {
  every_minute_.set_after(kEvery);
  if (is_over(maintaining_)) {
    maintaining_ = std::async(std::launch::async, maintain_);
  }
}

void Housekeeping::reload() {
  if (reload_ && reloads_asked_.fetch_add(1) == 0) {  // else the thread that is at it does it again
    reloading_ = std::async(std::launch::async, [this] { reload_while_asked(); });
  }
}

void Housekeeping::reload_while_asked() {
  for (unsigned asked = reloads_asked_.load();;) {
    manager_.notify(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", steady_ns() / 1000));
    reload_();
    manager_.notify("READY=1");
    if (reloads_asked_.compare_exchange_strong(asked, 0)) {
      return;
    }
  }
}

void Housekeeping::finish() {
  stop();
  for (const std::future<void>* const running : {&maintaining_, &reloading_}) {
    if (running->valid()) {
      running->wait();
    }
  }
  if (maintain_) {
    maintain_();
  }
}

}  // namespace cukiln::daemon
