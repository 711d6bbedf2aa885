// SPDX-License-Identifier: Apache-2.0
#include "core/base/kept_fd.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace cukiln {

namespace {

/// What a kept descriptor is. Read in fork handlers and in SQLite's calls: no lock, no allocation.
struct Kept {
  std::atomic<bool> is_taken = false;  ///< the number is its owner's, lost or not
  std::atomic<std::uint64_t> device = 0;
  std::atomic<std::uint64_t> inode = 0;
};

// A descriptor with a larger number is not kept: it is used as it is.
constexpr int kNumbers = 16 << 10;
std::array<Kept, kNumbers> kept_descriptors;

Kept* kept_at(int fd) noexcept {
  if (fd < 0 || fd >= kNumbers) {
    return nullptr;
  }
  Kept& kept = kept_descriptors[static_cast<std::size_t>(fd)];
  return kept.is_taken.load(std::memory_order_acquire) ? &kept : nullptr;
}

bool take(int fd, const struct stat& what) noexcept {
  if (fd < 0 || fd >= kNumbers) {
    return false;
  }
  Kept& kept = kept_descriptors[static_cast<std::size_t>(fd)];
  if (kept.is_taken.exchange(true)) {
    return false;  // the number of a lost one
  }
  kept.device = what.st_dev;
  kept.inode = what.st_ino;
  return true;
}

bool is_kept_too(const struct stat& what) noexcept {
  return std::any_of(kept_descriptors.begin(), kept_descriptors.end(), [&](const Kept& kept) {
    return kept.is_taken && kept.device == what.st_dev && kept.inode == what.st_ino;
  });
}

/// How many descriptors the kernel's table of this process has room for, at first 64. Read once: it
/// only grows.
rlim_t table_size() noexcept {
  static std::atomic<rlim_t> known = 0;
  if (known == 0) {
    std::array<char, 512> text{};
    const UniqueFd status(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
    const bool is_read = status && ::read(status.get(), text.data(), text.size() - 1) > 0;
    constexpr std::string_view kName = "FDSize:";
    const char* const line = is_read ? std::strstr(text.data(), kName.data()) : nullptr;
    known = line != nullptr ? std::strtoul(line + kName.size(), nullptr, 10) : RLIM_INFINITY;
  }
  return known;
}

/// The lowest number of kept descriptors: above what a host uses, within its limit. It has a place
/// in the table: to let that grow, a process with threads waits for all processors, some 10 ms.
int lowest_number() noexcept {
  constexpr rlim_t kLowest = 1000;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return 0;
  }
  const rlim_t room = std::min(limit.rlim_cur, table_size());
  return static_cast<int>(std::min(kLowest, room - room / 4));
}

/// Copies a descriptor to the first number from `lowest` on that is not a lost one's. -1 if there
/// is none.
int copy_and_take(int fd, int lowest, const struct stat& what) noexcept {
  for (;;) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, lowest);
    if (copy < 0 || take(copy, what)) {
      return copy;
    }
    ::close(copy);
    if (copy >= kNumbers) {
      return -1;
    }
    lowest = copy + 1;
  }
}

}  // namespace

int keep_descriptor(int fd) noexcept {
  struct stat what {};
  if (::fstat(fd, &what) != 0) {
    return fd;
  }
  const int moved = copy_and_take(fd, lowest_number(), what);
  if (moved < 0 && take(fd, what)) {
    return fd;
  }
  const int kept = moved >= 0 ? moved : copy_and_take(fd, 0, what);
  if (kept < 0) {
    return fd;
  }
  ::close(fd);
  return kept;
}

int keep_locked_descriptor(int fd) noexcept {
  struct stat what {};
  if (::fstat(fd, &what) != 0) {
    return fd;
  }
  if (!is_kept_too(what)) {
    return keep_descriptor(fd);
  }
  if (take(fd, what)) {
    return fd;
  }
  const int moved = copy_and_take(fd, 0, what);  // fd stays open: it is the number of a lost one
  return moved >= 0 ? moved : fd;
}

bool is_lost(int fd) noexcept {
  const Kept* const kept = kept_at(fd);
  struct stat now {};
  return kept != nullptr &&
         (::fstat(fd, &now) != 0 || kept->device != now.st_dev || kept->inode != now.st_ino);
}

bool close_kept(int fd) noexcept {
  Kept* const kept = kept_at(fd);
  if (kept == nullptr) {
    return false;
  }
  if (!is_lost(fd)) {
    ::close(fd);
  }
  kept->is_taken = false;
  return true;
}

void KeptFd::reset() noexcept {
  if (const int fd = release(); fd >= 0 && !close_kept(fd)) {
    ::close(fd);
  }
}

}  // namespace cukiln
