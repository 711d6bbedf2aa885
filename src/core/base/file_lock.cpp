// SPDX-License-Identifier: Apache-2.0
#include "core/base/file_lock.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <string_view>
#include <thread>

#include "core/base/backoff.hpp"
#include "core/base/file_size_limit.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

// A forked child must close its copies of the descriptors, or the parent's death would not release
// the locks. The fork handler may call async-signal-safe functions only, hence a fixed array and no
// allocation. cukilnd holds two for each user's store that it has open.
constexpr std::size_t kMaxLocks = 1024;
std::array<std::atomic<int>, kMaxLocks>& held_descriptors() noexcept {
  static std::array<std::atomic<int>, kMaxLocks> descriptors{};  // 0: free, else fd + 1
  return descriptors;
}

void close_in_child() {
  for (std::atomic<int>& slot : held_descriptors()) {
    if (const int held = slot.exchange(0); held != 0) {
      close_kept(held - 1);
    }
  }
}

// Registered when the library is loaded: at the first lock, another thread might be forking.
const int kInstalled = ::pthread_atfork(nullptr, nullptr, close_in_child);

bool remember(int fd) noexcept {
  if (kInstalled != 0) {
    return false;
  }
  for (std::atomic<int>& slot : held_descriptors()) {
    int expected = 0;
    if (slot.compare_exchange_strong(expected, fd + 1)) {
      return true;
    }
  }
  return false;
}

/// False if a fork has closed the descriptor already; its number may have been reused since.
bool forget(int fd) noexcept {
  for (std::atomic<int>& slot : held_descriptors()) {
    int expected = fd + 1;
    if (slot.compare_exchange_strong(expected, 0)) {
      return true;
    }
  }
  return false;
}

std::string first_line_of(int fd) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  const std::string_view line(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return std::string(line.substr(0, line.find('\n')));
}

}  // namespace

Result<FileLock> FileLock::acquire(const std::string& path, Mode mode,
                                   std::chrono::milliseconds wait) {
  UniqueFd opened(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!opened && errno == EROFS) {
    opened = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  }
  if (!opened) {
    return make_error(ErrorCode::io, "cannot open the lock file {}: {}", path, errno_text(errno));
  }
  KeptFd fd(std::move(opened));
  const auto deadline = std::chrono::steady_clock::now() + wait;
  auto pause = std::chrono::microseconds(200);
  const int operation = (mode == Mode::exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
  while (::flock(fd.get(), operation) != 0) {
    if (errno == EINTR) {
      continue;
    }
    if (errno != EWOULDBLOCK) {
      return make_error(ErrorCode::io, "cannot lock {}: {}", path, errno_text(errno));
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return make_error(ErrorCode::timeout, "{} was still locked after {} ms", path, wait.count());
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline - now));
    pause = std::min(pause * 2, std::chrono::microseconds(10'000));
  }
  if (!remember(fd.number())) {
    return make_error(ErrorCode::internal,
                      "cannot lock {}: this process holds {} file locks already", path, kMaxLocks);
  }
  return FileLock(std::move(fd));
}

Result<FileLock> FileLock::acquire_removable(const std::string& path) {
  // No child is forked before the descriptor is remembered.
  const ForkGate::Pass pass;
  for (;;) {
    CUKILN_TRY(FileLock lock, acquire(path, Mode::exclusive, {}));
    if (lock.is_at(path)) {
      return lock;
    }
    // Its holder had removed the file since it was opened: another one may have that name now.
  }
}

std::optional<std::string> FileLock::holder(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    return std::nullopt;
  }
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) {
    ::flock(fd.get(), LOCK_UN);  // explicit: a child forked just now may have a copy of fd
    return std::nullopt;
  }
  if (errno != EWOULDBLOCK) {
    return std::nullopt;
  }
  return first_line_of(fd.get());
}

bool FileLock::await_release(const std::string& path,
                             std::chrono::steady_clock::time_point deadline,
                             CancelFlags cancelled) {
  Backoff backoff({std::chrono::milliseconds(1), std::chrono::milliseconds(20)});
  do {
    if (cancelled.is_set() || std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(backoff.next());
  } while (holder(path));
  return true;
}

FileLock::FileLock(KeptFd fd) : fd_(std::move(fd)) {}
FileLock::FileLock(FileLock&& other) noexcept = default;
FileLock& FileLock::operator=(FileLock&& other) noexcept {
  if (this != &other) {
    release();
    fd_ = std::move(other.fd_);
  }
  return *this;
}
FileLock::~FileLock() { release(); }

void FileLock::release() noexcept {
  if (!fd_) {
    return;
  }
  if (forget(fd_.number())) {
    ::flock(fd_.get(), LOCK_UN);  // for all copies: a child that is just being forked may hold one
    fd_.reset();
  } else {
    fd_.release();  // in a forked child: close_in_child has closed its copy
  }
}

bool FileLock::is_own() const noexcept {
  const auto& all = held_descriptors();
  return fd_ && std::any_of(all.begin(), all.end(), [&](const std::atomic<int>& slot) {
           return slot.load() == fd_.number() + 1;
         });
}

bool FileLock::is_at(const std::string& path) const noexcept {
  struct stat ours {};
  struct stat there {};
  return is_own() && ::fstat(fd_.get(), &ours) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

void FileLock::write_line(std::string_view line) noexcept {
  if (!is_own()) {
    return;
  }
  const FileSizeLimitGuard guard;
  static_cast<void>(!::ftruncate(fd_.get(), 0));
  static_cast<void>(!::pwrite(fd_.get(), line.data(), line.size(), 0));
  ::futimens(fd_.get(), nullptr);
}

std::string FileLock::first_line() const {
  return is_own() ? first_line_of(fd_.get()) : std::string();
}

void FileLock::hand_over() noexcept {
  // A child would keep a descriptor that is forgotten and not yet closed.
  const ForkGate::Pass pass;
  if (fd_ && forget(fd_.number())) {
    fd_.reset();
  } else {
    fd_.release();
  }
}

void FileLock::remove_and_release(const std::string& path) noexcept {
  if (is_at(path)) {
    ::unlink(path.c_str());
  }
  release();
}

}  // namespace cukiln
