// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "addons/daemon/main/current_remote.hpp"
#include "core/base/logger.hpp"
#include "core/loader/settings.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln::daemon {

/// Applies the settings that can change while a daemon runs: the store's cap, the log level, the
/// remote stores and their keys. Changes of others are logged and need a restart. Threads: one.
class LiveSettings {
 public:
  struct Targets {
    TieredStore& store;
    CurrentRemote& remote;
    std::atomic<LogLevel>& log_level;
    bool verbose = false;  ///< the command line has set the log level
  };
  LiveSettings(SettingsSources sources, Settings now, Targets targets, Logger log);

  /// Opens the remote stores. If that fails, logs the error and uses none.
  void open_remote();
  /// Reads the settings and their key files again. Nothing changes if there is a warning that the
  /// settings in use did not have.
  void reload();

 private:
  std::string new_warning(const Settings& fresh) const;
  void apply(const Settings& fresh);

  const SettingsSources sources_;
  Settings now_;
  const Targets targets_;
  const Logger log_;
};

/// Waits some seconds for the pending uploads of a remote store that is no longer used. `remote`
/// may be null.
void finish_uploads(RemoteTier* remote, const Logger& log);

}  // namespace cukiln::daemon
