// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.hpp"
#include "store/tiered_store.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Which store holds a user's entries, dependency sets and flight locks. A daemon of one user has
/// one store. A daemon for all users of a machine has one for each uid, in `users/<uid>` below its
/// own: nothing that one user's compile gave is found by another's request. Each has an equal share
/// of the size cap; few are open at a time. Threads: safe.
class UserStores {
 public:
  struct Options {
    TieredStore::Options each;   ///< `store.directory`: the daemon's own; `max_bytes`: of all users
    std::size_t max_open = 128;  ///< besides those in use: six descriptors each, 0.2 MB
    std::size_t max_users = 256;     ///< with a store on disk
    std::time_t kept_s = 24 * 3600;  ///< a store used since then makes room for no other user's
  };
  /// Keeps a store open.
  using Handle = std::shared_ptr<TieredStore>;

  /// `own` is everybody's. It outlives this.
  explicit UserStores(TieredStore& own);
  /// `own` holds no entries, only what is nobody's: counters, digests of NVRTC's libraries.
  UserStores(TieredStore& own, Options options);

  /// Null: nothing was stored for this user yet, or it cannot be opened.
  Handle find(uid_t user);
  /// Makes the store if it is missing. Errors: io (as many users as there may be have stores that
  /// were used lately), the store's.
  Result<Handle> open(uid_t user);

  /// Calls `visit` for the daemon's own store and every user's, opening what is closed.
  void for_each(const std::function<void(TieredStore&)>& visit);
  /// The cap of all users together. Shares change now for open stores, for others when `maintain`
  /// or their user comes.
  void set_max_bytes(std::uint64_t max_bytes);
  /// What stores need now and then (SqliteStore::maintain), for all that are open or larger than
  /// their share. Errors: the first store's that had one.
  Result<void> maintain();

 private:
  struct User {
    Handle store;                                  ///< null: closed
    std::uint64_t last_use = 0;                    ///< counts uses, for closing
    std::time_t last_used_s = 0;                   ///< the folder's mtime, for removing
    std::uint64_t fits_bytes = ~std::uint64_t{0};  ///< the last share that it was brought below
  };

  std::string folder_of(uid_t user) const;
  // With mutex_ held.
  std::uint64_t share() const noexcept;
  void share_out();
  Result<Handle> use(uid_t user, User& state);
  Result<void> open_closed(uid_t user, User& state);
  void close_idle();
  Result<void> remove_unused();

  /// Leaves a store that was closed closed. Errors: body's, and the store's.
  Result<void> visit(uid_t user, const std::function<Result<void>(TieredStore&)>& body);

  TieredStore& own_;
  const bool is_shared_;
  const Options options_;
  const std::string folder_;
  Mutex mutex_;
  std::uint64_t max_bytes_;
  std::uint64_t uses_ = 0;
  std::map<uid_t, User> users_;
};

}  // namespace cukiln::daemon
