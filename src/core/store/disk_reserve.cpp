// SPDX-License-Identifier: Apache-2.0
#include "core/store/disk_reserve.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/file.hpp"
#include "core/base/file_size_limit.hpp"

namespace cukiln {

namespace {

constexpr off_t kSomeBytes = 128 << 10;  // the WAL index has 32 KiB

off_t size_of(int fd) noexcept {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_size : 0;
}

}  // namespace

void DiskReserve::make(std::uint64_t bytes) const noexcept {
  if (bytes == 0) {
    return;
  }
  const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) {
    return;
  }
  const off_t before = size_of(fd.get());
  const auto wanted = static_cast<off_t>(bytes);
  const FileSizeLimitGuard guard;
  // Not posix_fallocate, which writes every block where the file system has no such call.
  if (before >= wanted || ::fallocate(fd.get(), 0, before, wanted - before) == 0) {
    return;
  }
  if (before == 0 || ::ftruncate(fd.get(), before) != 0) {
    release();
  }
}

void DiskReserve::release() const noexcept { ::unlink(path_.c_str()); }

bool DiskReserve::release_some() const noexcept {
  const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  const off_t before = fd ? size_of(fd.get()) : 0;
  return before > 0 && ::ftruncate(fd.get(), std::max<off_t>(before - kSomeBytes, 0)) == 0;
}

}  // namespace cukiln
