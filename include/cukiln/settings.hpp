// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <cukiln/export.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/store.hpp>

namespace cukiln {
inline namespace v0 {

/// One setting: its value and where it came from.
struct Setting {
  std::string name;  ///< as in config.toml: `store`, `nvrtc_library`, …
  std::string value;
  std::string origin;  ///< `default`, `environment CUKILN_STORE`, `/etc/cukiln/config.toml`, …
};

/// A configuration file that was looked for.
struct ConfigFile {
  std::string path;
  bool found = false;
};

/// The fleet's stores. The library itself never speaks to them: the command line and the daemon do.
struct RemoteSettings {
  std::string stores;  ///< `redis(s)://host:port[/prefix]`, `http(s)://host/path`,
                       ///< `s3+http(s)://keys@host/bucket`, commas between; empty: none
  std::string trust;   ///< public keys, `name:base64` or files of them, commas between; what they
                       ///< revoke is in StoreOptions::revoked_keys too
  std::string sign;    ///< the file with a secret key: makes this host a writer; empty: a reader
  std::chrono::milliseconds timeout{200};  ///< of one lookup
};

/// Everything that the environment and the configuration files say, read once, on request only.
/// Order: what the caller sets afterwards, environment, `$XDG_CONFIG_HOME/cukiln/config.toml`,
/// `/etc/cukiln/config.toml`, default. In a set-user-id process the environment and the user's file
/// are ignored and the store is memory-only.
struct CUKILN_API Settings {
  StoreOptions store;
  LoaderOptions loader;
  RemoteSettings remote;
  LogLevel log_level = LogLevel::warn;
  bool watch_sources = true;  ///< whether a cukilnd of one user compiles ahead what was edited
  std::vector<Setting> all;
  std::vector<ConfigFile> files;      ///< the first outweighs the second
  std::vector<std::string> warnings;  ///< unknown keys, values that were refused and why

  static Result<Settings> resolve();
};

/// Bytes from `2GiB`, `512M`, `1048576`. Errors: invalid_argument.
CUKILN_API Result<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace v0
}  // namespace cukiln
