// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cukiln/event.hpp>
#include <cukiln/export.hpp>
#include <cukiln/log.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

class TieredStore;

inline namespace v0 {

/// Whether cukilnd, the host's compile daemon, is asked before this process compiles.
enum class DaemonUse {
  automatic,  ///< if one answers; a missing, hung or incompatible one costs milliseconds
  off,
  require,  ///< this process never compiles: without a daemon a miss is an error
};

/// Where cubins are stored. The defaults equal those of the command line when nothing is
/// configured.
struct StoreOptions {
  // schema: StoreOptions. Written by src/schema/generate.py
  /// absolute; empty: `$XDG_CACHE_HOME/cukiln`, else `~/.cache/cukiln` (`Settings::load()` has the
  /// configured one)
  std::string directory;
  std::string system_directory = "/var/cache/cukiln";  ///< read-only tier below; empty: none
  /// of the user's store; above it the least recently used entries are evicted
  std::uint64_t max_bytes = 2ull << 30;
  bool memory_only = false;                ///< store nothing on disk
  bool allow_network_file_system = false;  ///< SQLite's WAL is unsafe there: refused by default
  DaemonUse daemon = DaemonUse::automatic;
  std::string daemon_socket;  ///< empty: this user's daemon, else the system's
  /// Public keys, `name:base64`: an entry that one of them signed is a miss. `Settings::load()` has
  /// those that `remote_trust` revokes.
  std::vector<std::string> revoked_keys;
  /// `name:base64 modules=PREFIX`: an entry that one of them signed is a miss unless the module's
  /// name begins with PREFIX. `Settings::load()` has those of `remote_trust`.
  std::vector<std::string> scoped_keys;
  LogSink log;
  /// a loader's: hits, misses, compiles, loads, and what is needed after `seal()`; a store's:
  /// evictions and damage, in calls of a loader over it
  EventSink events;
  // end of schema
};

/// An open store: memory over the user's SQLite file over the read-only system store.
///
/// A fault of the store is no error for the host: a directory that cannot be trusted or written
/// makes it memory-only, with one warning in the log that says what to do.
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

  /// Returns why nothing is stored on disk; empty if the store is on disk.
  const std::string& bypass_reason() const noexcept;

 private:
  friend class cukiln::TieredStore;
  explicit Store(std::unique_ptr<TieredStore> tiers);
  std::unique_ptr<TieredStore> tiers_;
};

}  // namespace v0
}  // namespace cukiln
