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
/// The reserve of each store; smaller than usual, because there may be hundreds of stores.
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

std::vector<UserStores::Handle> UserStores::take_idle() {
  std::vector<Handle> idle;
  for (;;) {
    std::size_t open = 0;
    User* oldest = nullptr;
    for (auto& [user, state] : users_) {
      open += state.store != nullptr ? 1 : 0;
      // Handles are copied under the mutex only, so a store that only the table has stays so.
      if (state.store.use_count() == 1 &&
          (oldest == nullptr || state.last_use < oldest->last_use)) {
        oldest = &state;
      }
    }
    if (open < options_.max_open || oldest == nullptr) {
      return idle;
    }
    idle.push_back(std::move(oldest->store));
    oldest->store = nullptr;
  }
}

Result<UserStores::Opened> UserStores::open_existing(uid_t user) {
  MutexLock lock(mutex_);
  const auto at = users_.find(user);
  if (at == users_.end()) {
    return Opened();
  }
  User& state = at->second;  // not erased while `progress` is set
  if (state.store != nullptr) {
    return Opened{state.store, true};
  }
  if (const std::shared_ptr<Progress> progress = state.progress) {
    progressed_.wait(lock, [&] { return progress->opened.has_value(); });
    CUKILN_TRY(Handle store, *progress->opened);
    return Opened{std::move(store), false};
  }
  const auto progress = std::make_shared<Progress>();
  TieredStore::Options options = options_.each;
  options.store.directory = folder_of(user);
  options.store.max_bytes = share();
  options.disk.reserve_bytes = std::min(options.disk.reserve_bytes, kReserveBytes);
  std::vector<Handle> idle = take_idle();
  state.progress = progress;  // nothing may throw until it is reset
  lock.unlock();
  idle.clear();
  auto opened = guarded([&]() -> Result<Handle> {
    CUKILN_TRY(auto store, options_.open_store(std::move(options)));
    return Handle(std::move(store));
  });
  lock.lock();
  state.progress = nullptr;
  progress->opened.emplace(std::move(opened));
  progressed_.notify_all();
  CUKILN_TRY(state.store, *progress->opened);
  set_cap(*state.store, share());  // it may have changed meanwhile
  return Opened{state.store, false};
}

Result<UserStores::Handle> UserStores::use(uid_t user) {
  CUKILN_TRY(const Opened opened, open_existing(user));
  if (opened.store == nullptr) {
    return Handle();
  }
  if (!opened.was_open) {
    ::utimensat(AT_FDCWD, folder_of(user).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  }
  const MutexLock lock(mutex_);
  const auto at = users_.find(user);
  if (at != users_.end()) {
    at->second.fits_bytes = std::max(at->second.fits_bytes, share());  // it may grow to that
    at->second.last_use = ++uses_;
    at->second.last_used_s = std::time(nullptr);
  }
  return opened.store;
}

bool UserStores::add(uid_t user) {
  const MutexLock lock(mutex_);
  if (!users_.contains(user)) {
    if (users_.size() >= options_.max_users) {
      return false;
    }
    users_.try_emplace(user);
    share_out();
  }
  return true;
}

Result<void> UserStores::remove_unused() {
  MutexLock lock(mutex_);
  if (users_.size() < options_.max_users) {
    return {};
  }
  auto oldest = users_.end();
  for (auto at = users_.begin(); at != users_.end(); ++at) {
    if (at->second.progress == nullptr &&
        (oldest == users_.end() || at->second.last_used_s < oldest->second.last_used_s)) {
      oldest = at;
    }
  }
  if (oldest == users_.end() || oldest->second.store.use_count() > 1 ||
      std::time(nullptr) - oldest->second.last_used_s < options_.kept_s) {
    return make_error(ErrorCode::io,
                      "cukilnd has stores of {} users, and each was used in the last {} hours",
                      users_.size(), options_.kept_s / 3600);
  }
  const uid_t user = oldest->first;
  const std::string folder = folder_of(user);
  const auto progress = std::make_shared<Progress>();
  Handle store = std::exchange(oldest->second.store, nullptr);
  oldest->second.progress = progress;  // nothing may throw until the user is erased
  lock.unlock();
  store.reset();
  auto removed = guarded([&]() -> Result<void> {
    std::error_code error;
    fs::remove_all(folder, error);
    if (error) {
      return make_error(ErrorCode::io, "cannot remove {}: {}", folder, error.message());
    }
    return {};
  });
  lock.lock();
  users_.erase(user);
  progress->opened.emplace(Handle());
  progressed_.notify_all();
  return removed;
}

UserStores::Handle UserStores::find(uid_t user) {
  if (is_shared_) {
    return {Handle(), &own_};
  }
  auto store = use(user);
  return store ? *std::move(store) : nullptr;
}

Result<UserStores::Handle> UserStores::open(uid_t user) {
  if (is_shared_) {
    return Handle(Handle(), &own_);
  }
  for (;;) {
    while (!add(user)) {
      CUKILN_CHECK(remove_unused());
    }
    CUKILN_TRY(Handle store, use(user));
    if (store != nullptr) {  // else another thread has removed it since: create it again
      return store;
    }
  }
}

Result<void> UserStores::visit(uid_t user, const std::function<Result<void>(TieredStore&)>& body) {
  Result<void> done;
  CUKILN_TRY(Opened opened, open_existing(user));
  const Handle store = std::move(opened.store);
  if (store == nullptr) {
    return done;
  }
  done = body(*store);
  if (!opened.was_open) {
    const MutexLock lock(mutex_);
    const auto at = users_.find(user);
    if (at != users_.end() && at->second.store == store && store.use_count() == 2) {
      at->second.store.reset();
    }
  }
  return done;  // the last handle closes the store without the mutex
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
