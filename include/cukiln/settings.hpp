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

/// A configuration file that `Settings::load` tried to read.
struct ConfigFile {
  std::string path;
  bool exists = false;
};

/// The remote stores. The command line and the daemon use them; the library itself does not.
struct RemoteSettings {
  // schema: RemoteSettings. Written by src/schema/generate.py
  /// `redis(s)://host:port[/prefix]`, `http(s)://host/path`, `s3+http(s)://keys@host/bucket`,
  /// `file:///path`, commas between; empty: none
  std::string stores;
  /// public keys, `name:base64` or files of them, commas between; the keys that they revoke or
  /// limit to some modules are in StoreOptions too
  std::string trust;
  std::string sign;  ///< the file with a secret key: makes this host a writer; empty: a reader
  std::chrono::milliseconds timeout{200};  ///< of one lookup
  // end of schema
};

/// The settings of the environment and of the configuration files.
/// Precedence: what the caller sets afterwards, environment,
/// `$XDG_CONFIG_HOME/cukiln/config.toml`, `/etc/cukiln/config.toml`, default. In a set-user-id
/// process the environment and the user's file are ignored and the store is memory-only.
struct CUKILN_API Settings {
  StoreOptions store;
  LoaderOptions loader;
  RemoteSettings remote;
  // schema: Settings. Written by src/schema/generate.py
  LogLevel log_level = LogLevel::warn;
  // end of schema
  std::vector<Setting> all;
  std::vector<ConfigFile> files;      ///< in order of precedence
  std::vector<std::string> warnings;  ///< unknown keys and variables, refused values

  /// Reads environment and files now; nothing else in the library does. What is refused is a
  /// warning; an unknown variable is one in the process's first load. Errors: internal (no memory).
  static Result<Settings> load();
};

/// Parses a size in bytes: `2GiB`, `512M`, `1048576`. Errors: invalid_argument.
CUKILN_API Result<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace v0
}  // namespace cukiln
