// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cukiln/settings.hpp>

namespace cukiln {

/// Prefix of the environment variables that are settings.
inline constexpr std::string_view kVariablePrefix = "CUKILN_";

/// Where settings come from; tests inject their own.
struct SettingsSources {
  std::function<std::optional<std::string>(const char* name)> environment;
  /// The names of all variables that begin with CUKILN_; an empty function: none.
  std::function<std::vector<std::string>()> variables;
  bool secure_process =
      false;  ///< set-user-id or the like (AT_SECURE): the environment is not trusted
  std::string system_file = "/etc/cukiln/config.toml";

  /// Returns those of this process. Without $HOME the password database has the home folder.
  static SettingsSources of_this_process();
};

/// Returns a variable's value; nothing if it is empty or not set.
std::optional<std::string> value_of(const SettingsSources& sources, const char* name);

/// `$variable/cukiln`, else `~/otherwise/cukiln`.
std::string user_folder(const SettingsSources& sources, const char* variable,
                        const char* otherwise);

/// `$XDG_CACHE_HOME/cukiln`, else `~/.cache/cukiln`.
std::string default_store_directory(const SettingsSources& sources);

/// Returns the sockets on which this user's cukilnd may listen:
/// `$XDG_RUNTIME_DIR/cukiln/cukilnd.sock` and `$TMPDIR/cukiln-<uid>/cukilnd.sock`. It listens on
/// the first. None for a set-user-id process.
std::vector<std::string> daemon_sockets(const SettingsSources& sources);

/// Returns those that a process with these options asks; none if it asks no daemon.
std::vector<std::string> daemon_sockets(const SettingsSources& sources, const StoreOptions& store);

/// As Settings::load, from given sources.
Result<Settings> load_settings(const SettingsSources& sources);

}  // namespace cukiln
