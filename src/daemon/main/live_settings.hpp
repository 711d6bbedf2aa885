// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "base/logger.hpp"
#include "daemon/main/current_remote.hpp"
#include "daemon/user_stores.hpp"
#include "loader/settings.hpp"

namespace cukiln::daemon {

/// The settings that may change while a daemon runs, where they take effect: the store's cap, how
/// much is logged, the fleet's stores and whom they are believed. Everything else waits for its
/// next start, and is said to.
class LiveSettings {
 public:
  struct Targets {
    UserStores& stores;
    CurrentRemote& remote;
    std::atomic<LogLevel>& log_level;
    bool system = false;   ///< for all users: it does not sign
    bool verbose = false;  ///< the command line's word on the log, which counts more
  };
  LiveSettings(SettingsSources sources, Settings now, Targets targets, Logger log);

  /// Opens the fleet's stores. One that cannot be used is none: the host must not suffer for it.
  void open_remote();
  /// Reads the settings again, and the keys that they name. Settings with mistakes in them change
  /// nothing.
  void reload();

 private:
  void take(const Settings& fresh);

  const SettingsSources sources_;
  Settings now_;
  const Targets targets_;
  const Logger log_;
};

/// Why a daemon for all users cannot serve with these settings: it would sign, for the fleet, what
/// any user of the machine had it compile. Nothing: it can.
std::optional<std::string> refused_for_system(const Settings& settings);

/// Nothing more is to be sent to this store: waits for what is on its way, for some seconds. Null:
/// there is none.
void finish_uploads(RemoteStore* remote, const Logger& log);

}  // namespace cukiln::daemon
