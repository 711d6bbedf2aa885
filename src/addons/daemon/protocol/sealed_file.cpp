// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/protocol/sealed_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "core/base/result.hpp"

namespace cukiln::wire {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

struct Mapping {
  Mapping(void* at, std::size_t bytes) noexcept : address(at), size(bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(address, size); }
  void* address;
  std::size_t size;
};

}  // namespace

Result<UniqueFd> make_sealed_file(std::initializer_list<ByteView> parts) {
  UniqueFd fd(::memfd_create("cukiln", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) {
    return make_error(ErrorCode::io, "cannot create a memory file: {}", errno_text(errno));
  }
  for (const ByteView part : parts) {
    if (!write_all(fd.get(), part)) {
      return make_error(ErrorCode::io, "cannot write a memory file: {}", errno_text(errno));
    }
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    return make_error(ErrorCode::io, "cannot seal a memory file: {}", errno_text(errno));
  }
  return fd;
}

bool is_memory_file(int fd) noexcept { return ::fcntl(fd, F_GET_SEALS) >= 0; }

Result<std::uint64_t> check_sealed_file(int fd, std::uint64_t max_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  struct stat status {};
  struct statfs system {};
  // A file of hugetlbfs does not report its holes.
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(fd, &status) != 0 ||
      ::fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return Error(ErrorCode::invalid_argument,
                 "the attached descriptor is not a sealed memory file");
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > max_bytes) {
    return make_error(ErrorCode::invalid_argument,
                      "the attached file has {} bytes, expected at most {}", size, max_bytes);
  }
  // Not by st_blocks, which counts blocks beyond the end too. Nothing uses the file's position.
  if (const off_t hole = ::lseek(fd, 0, SEEK_HOLE); size != 0 && hole != status.st_size) {
    return make_error(ErrorCode::invalid_argument,
                      "the attached file has {} bytes and a hole at {}, expected none", size, hole);
  }
  return size;
}

Result<SharedBytes> map_sealed_file(int fd, std::uint64_t max_bytes) {
  CUKILN_TRY(const std::uint64_t size, check_sealed_file(fd, max_bytes));
  if (size == 0) {
    return SharedBytes();
  }
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) {
    return make_error(ErrorCode::io, "cannot map a memory file of {} bytes: {}", size,
                      errno_text(errno));
  }
  return SharedBytes(std::make_shared<Mapping>(at, size),
                     ByteView(static_cast<const char*>(at), size));
}

}  // namespace cukiln::wire
