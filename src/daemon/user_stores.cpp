// SPDX-License-Identifier: Apache-2.0
#include "daemon/user_stores.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"

namespace cukiln::daemon {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "users";
/// Of each store, for evicting on a full disk: there may be hundreds.
constexpr std::uint64_t kReserveBytes = 1 << 20;

std::optional<uid_t> user_named(const std::string& name) {
  uid_t user = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), user);
  const bool is_whole = error == std::errc{} && end == name.data() + name.size();
  return is_whole && name == std::to_string(user) ? std::optional(user) : std::nullopt;
}

Result<void> maintain_disk(TieredStore& store) {
  return store.disk() != nullptr ? store.disk()->maintain() : Result<void>();
}

void set_cap(TieredStore& store, std::uint64_t max_bytes) {
  if (store.disk() != nullptr) {
    store.disk()->set_max_bytes(max_bytes);
  }
}

}  // namespace

UserStores::UserStores(TieredStore& own) : own_(own), is_shared_(true), max_bytes_(0) {}

UserStores::UserStores(TieredStore& own, Options options)
    : own_(own),
      is_shared_(false),
      options_(std::move(options)),
      folder_(join_path(options_.each.store.directory, kFolder)),
      max_bytes_(options_.each.store.max_bytes) {
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    struct stat status {};
    const auto user = user_named(at->path().filename().string());
    if (user && ::lstat(at->path().c_str(), &status) == 0) {
      users_[*user].last_used_s = status.st_mtime;
    }
  }
}

std::string UserStores::folder_of(uid_t user) const {
  return join_path(folder_, std::to_string(user));
}

std::uint64_t UserStores::share() const noexcept {
  return max_bytes_ / std::max<std::size_t>(users_.size(), 1);
}

void UserStores::share_out() {
  for (auto& [user, state] : users_) {
    if (state.store != nullptr) {
      set_cap(*state.store, share());
      state.fits_bytes = std::max(state.fits_bytes, share());
    }
  }
}

Result<void> UserStores::open_closed(uid_t user, User& state) {
  if (state.store != nullptr) {
    return {};
  }
  close_idle();
  TieredStore::Options options = options_.each;
  options.store.directory = folder_of(user);
  options.store.max_bytes = share();
  options.disk.reserve_bytes = std::min(options.disk.reserve_bytes, kReserveBytes);
  CUKILN_TRY(state.store, TieredStore::open(std::move(options)));
  return {};
}

Result<UserStores::Handle> UserStores::use(uid_t user, User& state) {
  const bool was_open = state.store != nullptr;
  CUKILN_CHECK(open_closed(user, state));
  if (!was_open) {
    ::utimensat(AT_FDCWD, folder_of(user).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  }
  state.fits_bytes = std::max(state.fits_bytes, share());  // it may grow to that
  state.last_use = ++uses_;
  state.last_used_s = std::time(nullptr);
  return state.store;
}

/// Whoever has a handle got it under the mutex: a store that only this has stays so.
void UserStores::close_idle() {
  for (;;) {
    std::size_t open = 0;
    User* oldest = nullptr;
    for (auto& [user, state] : users_) {
      open += state.store != nullptr ? 1 : 0;
      if (state.store.use_count() == 1 &&
          (oldest == nullptr || state.last_use < oldest->last_use)) {
        oldest = &state;
      }
    }
    if (open < options_.max_open || oldest == nullptr) {
      return;
    }
    oldest->store.reset();
  }
}

Result<void> UserStores::remove_unused() {
  if (users_.size() < options_.max_users) {
    return {};
  }
  const auto oldest = std::min_element(
      users_.begin(), users_.end(),
      [](const auto& a, const auto& b) { return a.second.last_used_s < b.second.last_used_s; });
  const bool is_idle = oldest->second.store == nullptr || oldest->second.store.use_count() == 1;
  if (!is_idle || std::time(nullptr) - oldest->second.last_used_s < options_.kept_s) {
    return make_error(ErrorCode::io,
                      "cukilnd keeps stores of {} users, and each was used in the last {} hours",
                      users_.size(), options_.kept_s / 3600);
  }
  std::error_code error;
  const std::string folder = folder_of(oldest->first);
  users_.erase(oldest);
  fs::remove_all(folder, error);
  if (error) {
    return make_error(ErrorCode::io, "cannot remove {}: {}", folder, error.message());
  }
  return {};
}

UserStores::Handle UserStores::find(uid_t user) {
  if (is_shared_) {
    return {Handle(), &own_};
  }
  const MutexLock lock(mutex_);
  const auto at = users_.find(user);
  if (at == users_.end()) {
    return nullptr;
  }
  auto store = use(user, at->second);
  return store ? *std::move(store) : nullptr;
}

Result<UserStores::Handle> UserStores::open(uid_t user) {
  if (is_shared_) {
    return Handle(Handle(), &own_);
  }
  const MutexLock lock(mutex_);
  if (!users_.contains(user)) {
    CUKILN_CHECK(remove_unused());
    users_[user];
    share_out();
  }
  return use(user, users_[user]);
}

Result<void> UserStores::visit(uid_t user, const std::function<Result<void>(TieredStore&)>& body) {
  Handle store;
  bool was_open = false;
  {
    const MutexLock lock(mutex_);
    const auto at = users_.find(user);
    if (at == users_.end()) {
      return {};
    }
    was_open = at->second.store != nullptr;
    CUKILN_CHECK(open_closed(user, at->second));
    store = at->second.store;
  }
  auto done = body(*store);
  if (!was_open) {
    const MutexLock lock(mutex_);
    const auto at = users_.find(user);
    if (at != users_.end() && at->second.store == store && store.use_count() == 2) {
      at->second.store.reset();
    }
  }
  return done;  // what was the last handle is closed without the lock
}

void UserStores::for_each(const std::function<void(TieredStore&)>& visitor) {
  visitor(own_);
  std::vector<uid_t> users;
  {
    const MutexLock lock(mutex_);
    for (const auto& [user, state] : users_) {
      users.push_back(user);
    }
  }
  for (const uid_t user : users) {
    static_cast<void>(visit(user, [&](TieredStore& store) -> Result<void> {
      visitor(store);
      return {};
    }));
  }
}

void UserStores::set_max_bytes(std::uint64_t max_bytes) {
  set_cap(own_, max_bytes);
  const MutexLock lock(mutex_);
  max_bytes_ = max_bytes;
  share_out();
}

Result<void> UserStores::maintain() {
  Result<void> done = maintain_disk(own_);
  std::uint64_t fits_bytes = 0;
  std::vector<uid_t> due;
  {
    const MutexLock lock(mutex_);
    fits_bytes = share();
    for (const auto& [user, state] : users_) {
      if (state.store != nullptr || state.fits_bytes > fits_bytes) {
        due.push_back(user);
      }
    }
  }
  for (const uid_t user : due) {
    auto one = visit(user, maintain_disk);
    if (one) {
      const MutexLock lock(mutex_);
      if (const auto at = users_.find(user); at != users_.end()) {
        at->second.fits_bytes = fits_bytes;
      }
    } else if (done) {
      done = std::move(one);
    }
  }
  return done;
}

}  // namespace cukiln::daemon
