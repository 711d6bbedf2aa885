// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cukiln/settings.hpp>

namespace cukiln {

/// Of every variable that is a setting.
inline constexpr std::string_view kVariablePrefix = "CUKILN_";

/// Where settings come from, injected so that tests have an environment of their own.
struct SettingsSources {
  std::function<std::optional<std::string>(const char* name)> environment;
  /// The names of all variables that begin with CUKILN_; empty: none is looked at.
  std::function<std::vector<std::string>()> variables;
  bool secure_process =
      false;  ///< set-user-id or the like (AT_SECURE): the environment is not trusted
  std::string system_file = "/etc/cukiln/config.toml";

  /// This process's own. Without $HOME there is the password database's.
  static SettingsSources of_this_process();
};

/// A variable's value; none where it is empty.
std::optional<std::string> value_of(const SettingsSources& sources, const char* name);

/// `$variable/cukiln`, else `~/otherwise/cukiln`.
std::string user_folder(const SettingsSources& sources, const char* variable,
                        const char* otherwise);

/// `$XDG_CACHE_HOME/cukiln`, else `~/.cache/cukiln`.
std::string default_store_directory(const SettingsSources& sources);

/// Where cukilnd may answer: this user's, `$XDG_RUNTIME_DIR/cukiln/cukilnd.sock` and
/// `$TMPDIR/cukiln-<uid>/cukilnd.sock`, then the system's, `/run/cukiln/cukilnd.sock`. The first is
/// where a daemon of this user listens. None for a set-user-id process.
std::vector<std::string> daemon_sockets(const SettingsSources& sources);
inline constexpr const char* kSystemSocket = "/run/cukiln/cukilnd.sock";

Result<Settings> resolve_settings(const SettingsSources& sources);

}  // namespace cukiln
