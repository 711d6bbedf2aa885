// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <future>

#include "addons/daemon/event_loop.hpp"
#include "addons/daemon/service_manager.hpp"

namespace cukiln::daemon {

/// Background tasks of a daemon, in threads of their own because they block: maintenance of the
/// stores once a minute, and reloads of the settings. Threads: the loop's only.
class Housekeeping {
 public:
  Housekeeping(EventLoop& loop, const ServiceManager& manager);

  void set_maintenance(std::function<void()> maintain) { maintain_ = std::move(maintain); }
  void set_reload(std::function<void()> reload) { reload_ = std::move(reload); }

  /// Starts the maintenance timer.
  void begin();
  void stop() noexcept {
    maintenance_timer_.cancel();
    reload_timer_.cancel();
  }
  /// Starts a reload. If one is running, it is repeated once after that.
  void reload();
  /// Waits for running tasks, then runs the maintenance a last time in this thread.
  void finish();

 private:
  void maintain();
  void reload_while_requested();

  const ServiceManager& manager_;
  std::function<void()> maintain_, reload_;
  std::future<void> maintaining_, reloading_;
  std::atomic<unsigned> reloads_requested_{0};
  EventLoop::Timer maintenance_timer_, reload_timer_;
};

}  // namespace cukiln::daemon
