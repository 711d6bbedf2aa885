// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/housekeeping.hpp"

#include <fmt/format.h>

#include <chrono>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::chrono::seconds kMaintenanceInterval{60};
constexpr std::chrono::seconds kReloadRetry{1};

bool has_finished(const std::future<void>& running) {
  return !running.valid() || running.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

Housekeeping::Housekeeping(EventLoop& loop, const ServiceManager& manager)
    : manager_(manager),
      maintenance_timer_(loop, [this] { maintain(); }),
      reload_timer_(loop, [this] { reload(); }) {}

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
  if (!reload_ || reloads_requested_.fetch_add(1) != 0) {  // else the running reload is repeated
    return;
  }
  const auto started = guarded([&]() -> Result<void> {
    reloading_ = std::async(std::launch::async, [this] { reload_while_requested(); });
    return {};
  });
  if (!started) {  // no thread can be started now
    reloads_requested_.store(0);
    reload_timer_.set_after(kReloadRetry);
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
