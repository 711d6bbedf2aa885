// SPDX-License-Identifier: Apache-2.0
// Interposes libc's file functions: the dynamic linker binds libnvrtc's calls to the definitions in
// this executable. During a compile they are served from ServedFiles; otherwise they do what libc
// does, by direct system calls.
//
// Every function that can stat, open or resolve a path is here, whether or not today's NVRTC calls
// it: 12.9, 13.0 and 13.5 probe with __xstat and read with fopen.

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/worker/clock.hpp"
#include "core/worker/interpose.hpp"
#include "core/worker/served_files.hpp"

namespace cukiln::worker {
namespace {

using wire::FileKind;

bool observing() { return ServedFiles::instance().observing(); }

int fail(int error) {
  errno = error;
  return -1;
}

void describe(const ServedFile& file, struct stat* out) {
  *out = {};
  out->st_dev = file.device;
  out->st_ino = file.inode;
  out->st_nlink = 1;
  out->st_mode = file.kind == FileKind::folder ? S_IFDIR | 0555 : S_IFREG | 0444;
  out->st_size = static_cast<off_t>(file.bytes.size());
  out->st_blksize = 4096;
  out->st_blocks = (out->st_size + 511) / 512;
  out->st_mtim.tv_sec = kFixedInstantS;  // for all files: no result may depend on a file's age
  out->st_ctim.tv_sec = kFixedInstantS;
}

/// The errno value of an access to the file; 0 if it exists.
int error_of(const ServedFile& file) {
  switch (file.kind) {
    case FileKind::file:
    case FileKind::folder: return 0;
    case FileKind::absent: return ENOENT;
    case FileKind::error:
      return EACCES;  // the owner knows the reason and reports it after the compile
  }
  return ENOENT;
}

int stat_served(const char* path, struct stat* out) {
  const ServedFile& file = ServedFiles::instance().find(path);
  if (const int error = error_of(file)) {
    return fail(error);
  }
  describe(file, out);
  return 0;
}

int stat_any(int folder, const char* path, struct stat* out, int flags) {
  if (!observing() || path == nullptr) {
    return static_cast<int>(::syscall(SYS_newfstatat, folder, path, out, flags));
  }
  if ((flags & AT_EMPTY_PATH) != 0 && *path == '\0') {
    return static_cast<int>(::syscall(SYS_newfstatat, folder, path, out, flags));
  }
  return stat_served(path, out);
}

/// The file to read; null with errno set. A folder has no bytes: libc opens one too, and NVRTC's
/// front end then asks what it is, for its message.
const ServedFile* find_to_read(const char* path, int flags) {
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0) {
    fail(EROFS);
    return nullptr;
  }
  const ServedFile& file = ServedFiles::instance().find(path);
  if (const int error = error_of(file)) {
    fail(error);
    return nullptr;
  }
  return &file;
}

int open_any(int folder, const char* path, int flags, mode_t mode) {
  if (!observing() || std::strcmp(path, "/dev/null") == 0) {
    return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
  }
  // A descriptor would need a file in memory, which could grow and counts as no address space.
  // NVRTC 12.8 to 13.5 reads by streams; the probe notices one that does not.
  return find_to_read(path, flags) == nullptr ? -1 : fail(EACCES);
}

/// The cookie of a stream over a served file's bytes.
struct Reader {
  SharedBytes bytes;
  std::size_t at = 0;

  static ssize_t read(void* cookie, char* out, std::size_t size) {
    Reader& self = *static_cast<Reader*>(cookie);
    const std::size_t count = self.bytes.view().copy(out, size, self.at);
    self.at += count;
    return static_cast<ssize_t>(count);
  }
  static int seek(void* cookie, off64_t* offset, int whence) {
    Reader& self = *static_cast<Reader*>(cookie);
    const auto size = static_cast<off64_t>(self.bytes.size());
    const off64_t from = whence == SEEK_SET   ? 0
                         : whence == SEEK_CUR ? static_cast<off64_t>(self.at)
                                              : size;
    if (*offset < -from || *offset > size - from) {
      return fail(EINVAL);
    }
    *offset += from;
    self.at = static_cast<std::size_t>(*offset);
    return 0;
  }
  static int close(void* cookie) {
    delete static_cast<Reader*>(cookie);
    return 0;
  }
};

FILE* open_stream(const char* path, int flags) {
  const ServedFile* const file = find_to_read(path, flags);
  if (file == nullptr) {
    return nullptr;
  }
  auto* const reader = new Reader{ServedFiles::instance().note_read(path, *file)};
  FILE* const stream = ::fopencookie(
      reader, "r", {.read = Reader::read, .seek = Reader::seek, .close = Reader::close});
  if (stream == nullptr) {
    delete reader;
    return nullptr;
  }
  // NVRTC reads a file character by character, in one thread. In a process with two threads libc
  // locks the stream for each, which was an eighth of the compile time of a CUB kernel.
  ::__fsetlocking(stream, FSETLOCKING_BYCALLER);
  return stream;
}

FILE* fopen_any(const char* path, const char* mode) {
  int flags = O_RDONLY;
  if (std::strchr(mode, '+') != nullptr) {
    flags = O_RDWR;
  } else if (*mode != 'r') {
    flags = O_WRONLY;
  }
  flags |= *mode == 'w' ? O_CREAT | O_TRUNC : *mode == 'a' ? O_CREAT | O_APPEND : 0;
  flags |= std::strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0;
  if (observing() && std::strcmp(path, "/dev/null") != 0) {
    return open_stream(path, flags);
  }
  const int fd = open_any(AT_FDCWD, path, flags, 0666);
  if (fd < 0) {
    return nullptr;
  }
  FILE* file = ::fdopen(fd, mode);
  if (file == nullptr) {
    ::close(fd);
  }
  return file;
}

int access_any(int folder, const char* path, int mode) {
  if (!observing()) {
    return static_cast<int>(::syscall(SYS_faccessat, folder, path, mode));
  }
  const ServedFile& file = ServedFiles::instance().find(path);
  if (const int error = error_of(file)) {
    return fail(error);
  }
  return (mode & W_OK) != 0 ? fail(EROFS) : 0;
}

ssize_t readlink_any(int folder, const char* path, char* out, std::size_t size) {
  if (!observing()) {
    return ::syscall(SYS_readlinkat, folder, path, out, size);
  }
  const int error = error_of(ServedFiles::instance().find(path));
  return fail(error != 0 ? error : EINVAL);  // served files are never links
}

char* realpath_any(const char* path, char* out) {
  if (!observing()) {
    static const auto real =
        reinterpret_cast<char* (*)(const char*, char*)>(::dlsym(RTLD_NEXT, "realpath"));
    return real(path, out);
  }
  if (const int error = error_of(ServedFiles::instance().find(path))) {
    fail(error);
    return nullptr;
  }
  const std::string normal =
      std::filesystem::path(ServedFiles::instance().absolute(path)).lexically_normal().string();
  if (out == nullptr) {
    return ::strdup(normal.c_str());
  }
  if (normal.size() >= PATH_MAX) {
    fail(ENAMETOOLONG);
    return nullptr;
  }
  return std::strcpy(out, normal.c_str());
}

DIR* opendir_any(const char* path) {
  if (observing()) {
    // A listing cannot be recorded as a dependency. NVRTC does not need any: it probes paths.
    fail(EACCES);
    return nullptr;
  }
  const int fd = open_any(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  return fd < 0 ? nullptr : ::fdopendir(fd);
}

void* dlopen_any(const char* path, int flags) {
  static const auto real =
      reinterpret_cast<void* (*)(const char*, int)>(::dlsym(RTLD_NEXT, "dlopen"));
  const char* slash = path != nullptr ? std::strrchr(path, '/') : nullptr;
  const std::string_view name(slash != nullptr ? slash + 1 : path != nullptr ? path : "");
  if (name.substr(0, 7) == "libcuda" || name.substr(0, 9) == "libnvidia") {
    // NVRTC would initialise the driver, which takes 150 ms and is not needed for a compile.
    return nullptr;
  }
  return real(path, flags);
}

mode_t mode_argument(int flags, va_list list) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(list, int)) : 0;
}

}  // namespace

CUKILN_DEFINE(int, "stat", stat, (const char* path, struct stat* out)) {
  return stat_any(AT_FDCWD, path, out, 0);
}
CUKILN_DEFINE(int, "stat64", stat64, (const char* path, struct stat* out)) {
  return stat_any(AT_FDCWD, path, out, 0);
}
CUKILN_DEFINE(int, "lstat", lstat, (const char* path, struct stat* out)) {
  return stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
CUKILN_DEFINE(int, "lstat64", lstat64, (const char* path, struct stat* out)) {
  return stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
CUKILN_DEFINE(int, "__xstat", xstat, (int, const char* path, struct stat* out)) {
  return stat_any(AT_FDCWD, path, out, 0);
}
CUKILN_DEFINE(int, "__xstat64", xstat64, (int, const char* path, struct stat* out)) {
  return stat_any(AT_FDCWD, path, out, 0);
}
CUKILN_DEFINE(int, "__lxstat", lxstat, (int, const char* path, struct stat* out)) {
  return stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
CUKILN_DEFINE(int, "__lxstat64", lxstat64, (int, const char* path, struct stat* out)) {
  return stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
CUKILN_DEFINE(int, "fstatat", fstatat,
              (int folder, const char* path, struct stat* out, int flags)) {
  return stat_any(folder, path, out, flags);
}
CUKILN_DEFINE(int, "fstatat64", fstatat64,
              (int folder, const char* path, struct stat* out, int flags)) {
  return stat_any(folder, path, out, flags);
}
CUKILN_DEFINE(int, "__fxstatat", fxstatat,
              (int, int folder, const char* path, struct stat* out, int flags)) {
  return stat_any(folder, path, out, flags);
}
CUKILN_DEFINE(int, "__fxstatat64", fxstatat64,
              (int, int folder, const char* path, struct stat* out, int flags)) {
  return stat_any(folder, path, out, flags);
}
CUKILN_DEFINE(int, "statx", statx,
              (int folder, const char* path, int flags, unsigned mask, void* out)) {
  if (observing()) {
    return fail(ENOSYS);  // callers fall back to stat
  }
  return static_cast<int>(::syscall(SYS_statx, folder, path, flags, mask, out));
}

CUKILN_DEFINE(int, "open", open, (const char* path, int flags, ...)) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_argument(flags, list);
  va_end(list);
  return open_any(AT_FDCWD, path, flags, mode);
}
CUKILN_DEFINE(int, "open64", open64, (const char* path, int flags, ...)) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_argument(flags, list);
  va_end(list);
  return open_any(AT_FDCWD, path, flags, mode);
}
CUKILN_DEFINE(int, "openat", openat, (int folder, const char* path, int flags, ...)) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_argument(flags, list);
  va_end(list);
  return open_any(folder, path, flags, mode);
}
CUKILN_DEFINE(int, "openat64", openat64, (int folder, const char* path, int flags, ...)) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_argument(flags, list);
  va_end(list);
  return open_any(folder, path, flags, mode);
}
CUKILN_DEFINE(int, "__open_2", open_2, (const char* path, int flags)) {
  return open_any(AT_FDCWD, path, flags, 0);
}
CUKILN_DEFINE(int, "__open64_2", open64_2, (const char* path, int flags)) {
  return open_any(AT_FDCWD, path, flags, 0);
}
CUKILN_DEFINE(int, "__openat_2", openat_2, (int folder, const char* path, int flags)) {
  return open_any(folder, path, flags, 0);
}
CUKILN_DEFINE(int, "__openat64_2", openat64_2, (int folder, const char* path, int flags)) {
  return open_any(folder, path, flags, 0);
}
CUKILN_DEFINE(FILE*, "fopen", fopen, (const char* path, const char* mode)) {
  return fopen_any(path, mode);
}
CUKILN_DEFINE(FILE*, "fopen64", fopen64, (const char* path, const char* mode)) {
  return fopen_any(path, mode);
}
// Without the stream's lock: see fopen_any.
CUKILN_DEFINE(int, "_IO_getc", io_getc, (FILE * file)) { return getc_unlocked(file); }
CUKILN_DEFINE(int, "getc", getc, (FILE * file)) { return getc_unlocked(file); }
CUKILN_DEFINE(int, "fgetc", fgetc, (FILE * file)) { return getc_unlocked(file); }
CUKILN_DEFINE(FILE*, "freopen", freopen, (const char* path, const char* mode, FILE* stream)) {
  static const auto real =
      reinterpret_cast<FILE* (*)(const char*, const char*, FILE*)>(::dlsym(RTLD_NEXT, "freopen"));
  if (observing()) {
    fail(EACCES);
    return nullptr;
  }
  return real(path, mode, stream);
}
CUKILN_DEFINE(int, "access", access, (const char* path, int mode)) {
  return access_any(AT_FDCWD, path, mode);
}
CUKILN_DEFINE(int, "euidaccess", euidaccess, (const char* path, int mode)) {
  return access_any(AT_FDCWD, path, mode);
}
CUKILN_DEFINE(int, "faccessat", faccessat, (int folder, const char* path, int mode, int)) {
  return access_any(folder, path, mode);
}
CUKILN_DEFINE(ssize_t, "readlink", readlink, (const char* path, char* out, std::size_t size)) {
  return readlink_any(AT_FDCWD, path, out, size);
}
CUKILN_DEFINE(ssize_t, "readlinkat", readlinkat,
              (int folder, const char* path, char* out, std::size_t size)) {
  return readlink_any(folder, path, out, size);
}
CUKILN_DEFINE(char*, "realpath", realpath, (const char* path, char* out)) {
  return realpath_any(path, out);
}
CUKILN_DEFINE(char*, "__realpath_chk", realpath_chk, (const char* path, char* out, std::size_t)) {
  return realpath_any(path, out);
}
CUKILN_DEFINE(char*, "canonicalize_file_name", canonicalize, (const char* path)) {
  return realpath_any(path, nullptr);
}
CUKILN_DEFINE(DIR*, "opendir", opendir, (const char* path)) { return opendir_any(path); }
CUKILN_DEFINE(void*, "dlopen", dlopen, (const char* path, int flags)) {
  return dlopen_any(path, flags);
}

}  // namespace cukiln::worker
