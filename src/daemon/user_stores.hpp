// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "store/tiered_store.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Maps users to the stores that have their entries, dependency sets and lock files. A daemon of
/// one user has one store. A system daemon has one for each uid, in `users/<uid>` below its own, so
/// that no user's request finds what another user's compile gave. Each has an equal share of the
/// size cap, and few are open at a time. A store is opened and removed outside the mutex: other
/// users' requests do not wait for that. Threads: safe.
class UserStores {
 public:
  struct Options {
    TieredStore::Options each;   ///< `store.directory`: the daemon's own; `max_bytes`: of all users
    std::size_t max_open = 128;  ///< stores that are not in use: six descriptors each, 0.2 MB
    std::size_t max_users = 256;     ///< with a store on disk
    std::time_t kept_s = 24 * 3600;  ///< a store used since then is not removed for a new user
    /// Replaced by tests.
    std::function<Result<std::unique_ptr<TieredStore>>(TieredStore::Options)> open_store =
        &TieredStore::open;
  };
  /// Keeps a store open.
  using Handle = std::shared_ptr<TieredStore>;

  /// For one user: `own` has all entries. It outlives this.
  explicit UserStores(TieredStore& own);
  /// For all users: `own` has only counters and digests of NVRTC's libraries. It outlives this.
  UserStores(TieredStore& own, Options options);

  /// The user's store; null if there is none yet, or if it cannot be opened.
  Handle find(uid_t user) CUKILN_EXCLUDES(mutex_);
  /// The user's store, created if there is none. Errors: io (too many users have stores, and all
  /// were used recently), the store's.
  Result<Handle> open(uid_t user) CUKILN_EXCLUDES(mutex_);

  /// Calls `visit` for the daemon's own store and for every user's; opens those that are closed.
  void for_each(const std::function<void(TieredStore&)>& visit) CUKILN_EXCLUDES(mutex_);
  /// Sets the cap of all users together. Applies to open stores immediately, to others at the next
  /// `maintain` or use.
  void set_max_bytes(std::uint64_t max_bytes) CUKILN_EXCLUDES(mutex_);
  /// Runs SqliteStore::maintain for all stores that are open or larger than their share. Errors:
  /// the first store's that had one.
  Result<void> maintain() CUKILN_EXCLUDES(mutex_);

 private:
  /// The opening or removal of one user's store, by one thread.
  struct Progress {
    std::optional<Result<Handle>> opened;  ///< set once it is done; a null handle after a removal
  };
  struct User {
    Handle store;                                  ///< null: closed
    std::shared_ptr<Progress> progress;            ///< null: no thread opens or removes the store
    std::uint64_t last_use = 0;                    ///< counts uses, to close the oldest
    std::time_t last_used_s = 0;                   ///< the folder's mtime, to remove the oldest
    std::uint64_t fits_bytes = ~std::uint64_t{0};  ///< the last share that the store was cut to
  };
  struct Opened {
    Handle store;
    bool was_open = false;
  };

  std::string folder_of(uid_t user) const;
  std::uint64_t share() const noexcept CUKILN_REQUIRES(mutex_);
  void share_out() CUKILN_REQUIRES(mutex_);
  /// Makes the user's store open, or waits until another thread has done so. The store is null if
  /// the user has none.
  Result<Opened> open_existing(uid_t user) CUKILN_EXCLUDES(mutex_);
  /// As open_existing, and counts a use.
  Result<Handle> use(uid_t user) CUKILN_EXCLUDES(mutex_);
  /// Adds the user to the table if there is room. True if the table has it then.
  bool add(uid_t user) CUKILN_EXCLUDES(mutex_);
  /// Takes stores that no caller uses out of the table, the oldest first, until there is room for
  /// one more. The result must be destroyed without the mutex, because closing a store writes.
  std::vector<Handle> take_idle() CUKILN_REQUIRES(mutex_);
  /// Removes the store that was unused longest if there are max_users. Errors: io.
  Result<void> remove_unused() CUKILN_EXCLUDES(mutex_);
  /// Calls `body` with a user's store. Closes it afterwards if it was closed before. Errors:
  /// body's, and the store's.
  Result<void> visit(uid_t user, const std::function<Result<void>(TieredStore&)>& body)
      CUKILN_EXCLUDES(mutex_);

  TieredStore& own_;
  const bool is_shared_;
  const Options options_;
  const std::string folder_;
  Mutex mutex_;
  ConditionVariable progressed_;
  std::uint64_t max_bytes_ CUKILN_GUARDED_BY(mutex_);
  std::uint64_t uses_ CUKILN_GUARDED_BY(mutex_) = 0;
  std::map<uid_t, User> users_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln::daemon
