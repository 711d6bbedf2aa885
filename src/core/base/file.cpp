// SPDX-License-Identifier: Apache-2.0
#include "core/base/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "core/base/file_size_limit.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

std::int64_t nanoseconds(const timespec& t) noexcept {
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

constexpr std::size_t kChunkBytes = 256 << 10;  // fits into a core's L2 cache

struct OpenFile {
  UniqueFd fd;
  FileStamp stamp;
};

Result<OpenFile> open_regular(const std::string& path, std::uint64_t max_bytes) {
  // O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    return make_error(absent ? ErrorCode::not_found : ErrorCode::io, "cannot open {}: {}", path,
                      errno_text(error));
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    return make_error(ErrorCode::io, "cannot read {}: {}", path, errno_text(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::invalid_argument, "{} is a {}, expected a regular file", path,
                      S_ISDIR(status.st_mode) ? "directory" : "device, FIFO or socket");
  }
  if (static_cast<std::uint64_t>(status.st_size) > max_bytes) {
    return make_error(ErrorCode::invalid_argument, "{} has {} bytes, the limit is {}", path,
                      static_cast<std::uint64_t>(status.st_size), max_bytes);
  }
  return OpenFile{std::move(fd), stamp_of(status)};
}

/// The number of bytes read; 0 at the end of the file.
Result<std::size_t> read_some(const UniqueFd& fd, char* to, std::size_t size,
                              const std::string& path) {
  for (;;) {
    const ssize_t got = ::read(fd.get(), to, size);
    if (got >= 0) {
      return static_cast<std::size_t>(got);
    }
    if (errno != EINTR) {
      return make_error(ErrorCode::io, "cannot read {}: {}", path, errno_text(errno));
    }
  }
}

/// Writes `bytes` to a new file and renames it to `path`. After an error the new file is removed.
Result<void> replace_by(UniqueFd fd, const std::string& temporary, const std::string& path,
                        ByteView bytes) {
  const auto fail = [&](const char* what) {
    Error error = make_error(ErrorCode::io, "cannot {} {}: {}", what, path, errno_text(errno));
    ::unlink(temporary.c_str());
    return error;
  };
  if (!write_all(fd.get(), bytes)) {
    return fail("write");
  }
  if (::fsync(fd.get()) != 0) {
    return fail("sync");
  }
  fd.reset();
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    return fail("replace");
  }
  return {};
}

/// The path of a temporary file beside `path`: its name and the suffix, as far as a name may be
/// long.
std::string path_beside(const std::string& path, std::string_view suffix) {
  const std::size_t name = path.rfind('/') + 1;  // npos + 1: 0
  return path.substr(0, name) + path.substr(name, NAME_MAX - suffix.size()) + std::string(suffix);
}

}  // namespace

void UniqueFd::reset() noexcept {
  if (fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

FileStamp stamp_of(const struct stat& s) noexcept {
  return {s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size), nanoseconds(s.st_mtim),
          nanoseconds(s.st_ctim)};
}

bool write_all(int fd, ByteView bytes) noexcept {
  const FileSizeLimitGuard guard;
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

std::string errno_text(int error_number) {
  return fmt::format("{} ({})", std::generic_category().message(error_number), error_number);
}

Error cannot(const char* what, const std::string& path) {
  return make_error(ErrorCode::io, "cannot {} {}: {}", what, path, errno_text(errno));
}

std::string join_path(const std::string& folder, std::string_view name) {
  if (folder.empty()) {
    return std::string(name);
  }
  std::string path;
  path.reserve(folder.size() + 1 + name.size());
  path.append(folder).append(folder.back() == '/' ? "" : "/").append(name);
  return path;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

bool is_within(std::string_view path, std::string_view folder) noexcept {
  return path.substr(0, folder.size()) == folder &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

Result<FileContent> read_file(const std::string& path, std::uint64_t max_bytes) {
  CUKILN_TRY(const OpenFile file, open_regular(path, max_bytes));
  // One byte more than the file's size, so that the end is found without growing the buffer. A file
  // that grows meanwhile is read to its end, up to the limit.
  std::string bytes(static_cast<std::size_t>(file.stamp.size) + 1, '\0');
  std::size_t done = 0;
  while (true) {
    if (done == bytes.size()) {
      bytes.resize(done + 4096);
    }
    CUKILN_TRY(const std::size_t got,
               read_some(file.fd, bytes.data() + done, bytes.size() - done, path));
    if (got == 0) {
      break;
    }
    done += got;
    if (done > max_bytes) {
      return make_error(ErrorCode::invalid_argument, "{} grew over the limit of {} bytes", path,
                        max_bytes);
    }
  }
  bytes.resize(done);
  return FileContent{SharedBytes(std::move(bytes)), file.stamp};
}

Result<HashedFile> hash_file(const std::string& path, std::uint64_t max_bytes) {
  CUKILN_TRY(const OpenFile file, open_regular(path, max_bytes));
  ContentHasher hasher;
  std::string chunk(kChunkBytes, '\0');
  std::uint64_t done = 0;
  while (true) {
    CUKILN_TRY(const std::size_t got, read_some(file.fd, chunk.data(), chunk.size(), path));
    if (got == 0) {
      break;
    }
    hasher.add({chunk.data(), got});
    done += got;
  }
  if (done != file.stamp.size) {
    return make_error(ErrorCode::io, "{} changed while it was read: {} bytes, expected {}", path,
                      done, file.stamp.size);
  }
  return HashedFile{hasher.finish(), file.stamp};
}

Result<void> write_file_atomically(const std::string& path, ByteView bytes) {
  std::string temporary = path_beside(path, ".XXXXXX");
  UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));  // mkstemp's mode is 0600
  if (!fd) {
    return make_error(ErrorCode::io, "cannot create {}: {}", temporary, errno_text(errno));
  }
  return replace_by(std::move(fd), temporary, path, bytes);
}

std::string replaceable_path(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return path;
  }
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    return {};
  }
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) != nullptr ? resolved : path;
}

Result<void> write_output(const std::string& path, ByteView bytes) {
  const std::string target = replaceable_path(path);
  if (target.empty()) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd || !write_all(fd.get(), bytes)) {
      return make_error(ErrorCode::io, "cannot write {}: {}", path, errno_text(errno));
    }
    return {};
  }
  constexpr mode_t kWhatUmaskLeaves = 0666;
  const std::string temporary = path_beside(target, fmt::format(".part-{}", ::getpid()));
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                     kWhatUmaskLeaves));
  if (!fd) {
    return make_error(ErrorCode::io, "cannot write {}: {}", path, errno_text(errno));
  }
  struct stat status {};
  if (::stat(target.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    ::fchmod(fd.get(), status.st_mode & 0777);
  }
  return replace_by(std::move(fd), temporary, target, bytes);
}

}  // namespace cukiln
