// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "base/logger.hpp"
#include "daemon/audit_log.hpp"
#include "daemon/main/current_remote.hpp"
#include "daemon/user_stores.hpp"
#include "loader/settings.hpp"

namespace cukiln::daemon {

/// Applies the settings that can change while a daemon runs: the store's cap, the log level, the
/// remote stores and their keys. Changes of others are logged and need a restart. Threads: one.
class LiveSettings {
 public:
  struct Targets {
    UserStores& stores;
    CurrentRemote& remote;
    std::atomic<LogLevel>& log_level;
    AuditLog* audit = nullptr;  ///< may be null
    bool system = false;        ///< a system daemon must not sign
    bool verbose = false;       ///< the command line has set the log level
  };
  LiveSettings(SettingsSources sources, Settings now, Targets targets, Logger log);

  /// Opens the remote stores. If that fails, logs the error and uses none.
  void open_remote();
  /// Reads the settings and their key files again. Invalid settings change nothing.
  void reload();

 private:
  void apply(const Settings& fresh);

  const SettingsSources sources_;
  Settings now_;
  const Targets targets_;
  const Logger log_;
};

/// Why a system daemon must not start with these settings: it would sign results of any user of the
/// machine for the fleet. Nothing if it may.
std::optional<std::string> refused_for_system(const Settings& settings);

/// Waits some seconds for the pending uploads of a remote store that is no longer used. `remote`
/// may be null.
void finish_uploads(RemoteStore* remote, const Logger& log);

}  // namespace cukiln::daemon
