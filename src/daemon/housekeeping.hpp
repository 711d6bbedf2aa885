// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <future>

#include "daemon/event_loop.hpp"
#include "daemon/service_manager.hpp"

namespace cukiln::daemon {

/// What a daemon does beside serving, in threads of its own: the maintenance of its stores once a
/// minute, and reading its settings again. Both may wait for disks and other writers for long.
/// Threads: the loop's only.
class Housekeeping {
 public:
  Housekeeping(EventLoop& loop, const ServiceManager& manager);

  void set_maintenance(std::function<void()> maintain) { maintain_ = std::move(maintain); }
  void set_reload(std::function<void()> reload) { reload_ = std::move(reload); }

  /// Maintains every minute from now on.
  void begin();
  void stop() noexcept { every_minute_.cancel(); }
  /// Reloads once; and once more where it is asked for meanwhile.
  void reload();
  /// Waits for what runs, and maintains a last time, in this thread.
  void finish();

 private:
  void maintain();
  void reload_while_asked();

  const ServiceManager& manager_;
  std::function<void()> maintain_, reload_;
  std::future<void> maintaining_, reloading_;
  std::atomic<unsigned> reloads_asked_{0};
  EventLoop::Timer every_minute_;
};

}  // namespace cukiln::daemon
