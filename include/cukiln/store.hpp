// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cukiln/export.hpp>
#include <cukiln/log.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

class TieredStore;

inline namespace v0 {

/// Whether cukilnd, the host's compile daemon, is asked before something is compiled here.
enum class DaemonUse {
  automatic,  ///< where one answers; a missing, hung or strange one costs milliseconds
  off,
  require,  ///< never compile here: without a daemon, what is not in the store is an error
};

/// Where cubins are kept. The defaults are those of the command line without any setting.
struct StoreOptions {
  std::string directory;  ///< absolute; empty: `$XDG_CACHE_HOME/cukiln`, else `~/.cache/cukiln`
                          ///< (`Settings::load()` knows what was configured besides)
  std::string system_directory = "/var/cache/cukiln";  ///< read-only tier below; empty: none
  std::uint64_t max_bytes =
      2ull << 30;            ///< cap of the user's store; least recently used goes first
  bool memory_only = false;  ///< no disk at all
  bool allow_network_file_system = false;  ///< SQLite's WAL does not work there: refused by default
  DaemonUse daemon = DaemonUse::automatic;
  std::string daemon_socket;              ///< empty: this user's daemon, else the system's
  std::vector<std::string> revoked_keys;  ///< public keys, `name:base64`: what they signed, at any
                                          ///< time, is a miss. `Settings::load()` has those that
                                          ///< `remote_trust` revokes
  LogSink log;
};

/// An open store: memory over the user's SQLite file over the read-only system store.
///
/// A store never fails its host: a directory that cannot be trusted or written makes it
/// memory-only, with one warning in the log that says what to do.
///
/// Threads: safe, except for a move. Fork: a child may keep using it; it reopens the file.
/// Lifetime: a move invalidates neither loaders nor references into it; the moved-from object may
/// only be destroyed or assigned to.
class CUKILN_API Store {
 public:
  /// Errors: invalid_argument (a relative directory). Every other problem makes it memory-only.
  static Result<Store> open(StoreOptions options = {});
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;

  /// Why there is no disk tier; empty when there is one.
  const std::string& bypass_reason() const noexcept;

 private:
  friend class cukiln::TieredStore;
  explicit Store(std::unique_ptr<TieredStore> tiers);
  std::unique_ptr<TieredStore> tiers_;
};

/// The same as `Store::open`, under its name of version 0.1.
inline Result<Store> open_store(StoreOptions options = {}) {
  return Store::open(std::move(options));
}

}  // namespace v0
}  // namespace cukiln
