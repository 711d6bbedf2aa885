// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/bytes.hpp"
#include "core/base/hasher.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { reset(); }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

inline constexpr std::uint64_t kMaxSourceBytes = 64ull << 20;

/// Tells two versions of a file apart without reading it.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp stamp_of(const struct stat& s) noexcept;

struct FileContent {
  SharedBytes bytes;
  FileStamp stamp;  ///< of the opened descriptor, taken before the bytes were read
};

/// Reads a whole regular file. Never blocks on a FIFO or device.
/// Errors: not_found (absent), invalid_argument (not a regular file, larger than `max_bytes`), io.
Result<FileContent> read_file(const std::string& path, std::uint64_t max_bytes = kMaxSourceBytes);

struct HashedFile {
  ContentHash digest;
  FileStamp stamp;  ///< of the opened descriptor, taken before the bytes were read
};
/// Hashes a regular file with a buffer of fixed size. Errors: as read_file; also io if the file's
/// size changed meanwhile.
Result<HashedFile> hash_file(const std::string& path, std::uint64_t max_bytes);

/// Writes a file, mode 0600, by a temporary file and rename. Errors: io.
Result<void> write_file_atomically(const std::string& path, ByteView bytes);

/// The path at which an output file named by the user can be replaced by rename: `path` with
/// symbolic links resolved. Empty for a device, a FIFO or a socket, which must not be replaced.
std::string replaceable_path(const std::string& path);

/// Writes an output file named by the user, whole or not at all. The file keeps the mode of the one
/// it replaces; a new one gets the umask's. A device or FIFO is written to. Errors: io.
Result<void> write_output(const std::string& path, ByteView bytes);

/// Writes all of it, in as many calls as it takes. False with errno set.
bool write_all(int fd, ByteView bytes) noexcept;

/// The message for an errno value, `No such file or directory (2)`.
std::string errno_text(int error_number);

/// An io error with errno's message: `cannot write /a: No space left on device (28)`.
Error cannot(const char* what, const std::string& path);

/// Joins folder and name with one slash.
std::string join_path(const std::string& folder, std::string_view name);

/// The folder that contains a path; `/` for the root, for paths in it, and for a name without a
/// slash.
std::string folder_of(const std::string& path);

/// Whether a path is the folder or lies below it. Compares text only.
bool is_within(std::string_view path, std::string_view folder) noexcept;

}  // namespace cukiln
