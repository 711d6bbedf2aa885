// SPDX-License-Identifier: Apache-2.0
#include "daemon/housekeeping.hpp"

#include <fmt/format.h>

#include <chrono>

#include "base/clock.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::chrono::seconds kMaintenanceInterval{60};

bool has_finished(const std::future<void>& running) {
  return !running.valid() || running.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

Housekeeping::Housekeeping(EventLoop& loop, const ServiceManager& manager)
    : manager_(manager), maintenance_timer_(loop, [this] { maintain(); }) {}

void Housekeeping::begin() {
  if (maintain_) {
    maintenance_timer_.set_after(kMaintenanceInterval);
  }
}

void Housekeeping::maintain() {
  maintenance_timer_.set_after(kMaintenanceInterval);
  if (has_finished(maintaining_)) {
    maintaining_ = std::async(std::launch::async, maintain_);
  }
}

void Housekeeping::reload() {
  if (reload_ && reloads_requested_.fetch_add(1) == 0) {  // else the running reload is repeated
    reloading_ = std::async(std::launch::async, [this] { reload_while_requested(); });
  }
}

void Housekeeping::reload_while_requested() {
  for (unsigned requested = reloads_requested_.load();;) {
    manager_.notify(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", steady_ns() / 1000));
    reload_();
    manager_.notify("READY=1");
    if (reloads_requested_.compare_exchange_strong(requested, 0)) {
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
