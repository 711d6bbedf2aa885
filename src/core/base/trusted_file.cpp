// SPDX-License-Identifier: Apache-2.0
#include "core/base/trusted_file.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <link.h>
#include <pwd.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <memory>
#include <optional>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kDatabaseLineBytes = 16 << 10;  // a longer group entry is not a private group

/// What a symbolic link of /proc points to.
std::optional<std::string> link_target(const std::string& link) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlink(link.c_str(), target.data(), target.size());
  if (size <= 0 || target[0] != '/') {
    return std::nullopt;
  }
  return std::string(target.data(), static_cast<std::size_t>(size));
}

/// The path of the file mapped at an address, from /proc/self/maps.
std::optional<std::string> mapped_file(const void* address) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             std::fclose);
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::array<char, PATH_MAX + 128> line{};
  while (maps && std::fgets(line.data(), static_cast<int>(line.size()), maps.get()) != nullptr) {
    const std::string_view text(line.data());
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    const char* const stop = text.data() + text.size();
    const auto low = std::from_chars(text.data(), stop, begin, 16);
    if (low.ptr == stop || std::from_chars(low.ptr + 1, stop, end, 16).ec != std::errc{} ||
        wanted < begin || wanted >= end) {
      continue;
    }
    const std::size_t slash = text.find('/');
    return slash == std::string_view::npos
               ? std::nullopt
               : std::optional(std::string(text.substr(slash, text.rfind('\n') - slash)));
  }
  return std::nullopt;
}

}  // namespace

bool has_other_account(const std::string& accounts, uid_t owner, gid_t group) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(accounts.c_str(), "re"),
                                                             std::fclose);
  std::array<char, kDatabaseLineBytes> text{};
  struct passwd account {};
  struct passwd* found = nullptr;
  while (file && ::fgetpwent_r(file.get(), &account, text.data(), text.size(), &found) == 0) {
    if (account.pw_gid == group && account.pw_uid != owner) {
      return true;
    }
  }
  return false;
}

namespace {

/// Whether a group is a user's private group, as distributions create one for each user.
bool is_private_group(uid_t owner, gid_t group) {
  std::array<char, kDatabaseLineBytes> user_text{};
  std::array<char, kDatabaseLineBytes> group_text{};
  struct passwd user {};
  struct passwd* found_user = nullptr;
  struct group members {};
  struct group* found_group = nullptr;
  const ForkGate::Pass pass;  // libc's databases have locks of their own
  if (::getpwuid_r(owner, &user, user_text.data(), user_text.size(), &found_user) != 0 ||
      found_user == nullptr || user.pw_gid != group ||
      ::getgrgid_r(group, &members, group_text.data(), group_text.size(), &found_group) != 0 ||
      found_group == nullptr || std::string_view(members.gr_name) != user.pw_name) {
    return false;
  }
  for (char** member = members.gr_mem; *member != nullptr; ++member) {
    if (std::string_view(*member) != user.pw_name) {
      return false;
    }
  }
  return !has_other_account("/etc/passwd", owner, group);
}

/// With an access-control list, the mode's group bits are the mask for all users and groups named
/// in it.
bool has_access_list(const std::string& path) {
  return ::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0;
}

std::string why_not_trusted(const struct stat& status, const TrustedOwners& owners,
                            const std::string& path) {
  const bool by_group = (status.st_mode & S_IWGRP) != 0;
  return why_not_trusted(
      status, owners,
      by_group && !has_access_list(path) && is_private_group(status.st_uid, status.st_gid));
}

TrustedOwners owners_of(uid_t owner) {
  TrustedOwners owners{::geteuid(), ::geteuid()};
  if (owner == 0 || owner == owners.user) {
    return owners;
  }
  struct stat status {};
  const auto library = path_of_this_library();
  if (library && ::stat(library->c_str(), &status) == 0) {
    owners.library = status.st_uid;
  }
  return owners;
}

Result<void> check(const UniqueFd& file, const std::string& path, const char* what) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    return make_error(ErrorCode::io, "cannot read {}: {}", path, errno_text(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::invalid_argument, "{} {} is a {}, expected a regular file", what,
                      path, S_ISDIR(status.st_mode) ? "directory" : "device, FIFO or socket");
  }
  const std::string link = fmt::format("/proc/self/fd/{}", file.get());
  if (const std::string why = why_not_trusted(status, owners_of(status.st_uid), link);
      !why.empty()) {
    const bool foreign = (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
    return make_error(ErrorCode::invalid_argument,
                      "{} {} is not believed, another user could have written it: {}; look at what "
                      "it says, then: {} {}",
                      what, path, why,
                      foreign ? fmt::format("chown {}", ::geteuid()) : std::string("chmod go-w"),
                      path);
  }
  const std::string folder = folder_of(link_target(link).value_or(path));
  struct stat above {};
  if (::stat(folder.c_str(), &above) == 0 && (above.st_mode & S_ISVTX) == 0) {
    // The folder's owner is not checked: a file that he puts there instead is owned by him.
    const std::string why = why_not_trusted(above, {above.st_uid, above.st_uid}, folder);
    if (!why.empty()) {
      return make_error(ErrorCode::invalid_argument,
                        "{} {} is not believed, another user could have put it there: of its "
                        "folder, {}; look at what it says, then: chmod go-w {}",
                        what, path, why, folder);
    }
  }
  return {};
}

}  // namespace

std::string why_not_trusted(const struct stat& status, const TrustedOwners& owners,
                            bool private_group) {
  const unsigned mode = status.st_mode & 07777;
  if ((status.st_mode & S_IWOTH) != 0) {
    return fmt::format("everybody may write it (mode {:04o})", mode);
  }
  if ((status.st_mode & S_IWGRP) != 0 && !private_group) {
    return fmt::format("group {} may write it (mode {:04o})", status.st_gid, mode);
  }
  if (status.st_uid != 0 && status.st_uid != owners.user && status.st_uid != owners.library) {
    return fmt::format("it belongs to user {}, expected root, user {}{}", status.st_uid,
                       owners.user,
                       owners.library == 0 || owners.library == owners.user
                           ? std::string()
                           : fmt::format(" or user {}, whose the library is", owners.library));
  }
  return {};
}

Result<std::string> path_of_this_library() {
  const auto* const here = reinterpret_cast<const void*>(&path_of_this_library);
  Dl_info info{};
  link_map* object = nullptr;
  std::optional<std::string> path;
  const ForkGate::Pass pass;  // the dynamic linker has a lock of its own
  if (::dladdr1(here, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) != 0 &&
      object != nullptr) {
    const std::string_view name(object->l_name != nullptr ? object->l_name : "");
    if (name.empty()) {  // the program: what it was called by (argv[0]) is its caller's word
      path = link_target("/proc/self/exe");
    } else if (name.front() == '/') {
      path = std::string(name);
    } else {
      // A relative path, as with LD_LIBRARY_PATH=lib: the working directory may have changed since.
      path = mapped_file(here);
    }
  }
  if (!path) {
    return Error(ErrorCode::not_found,
                 "the path of the cukiln library cannot be found: /proc is not mounted");
  }
  return *std::move(path);
}

Result<UniqueFd> open_trusted_file(const std::string& path, const char* what, int flags) {
  // O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer.
  UniqueFd file(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    return make_error(absent ? ErrorCode::not_found : ErrorCode::io, "cannot open {} {}: {}", what,
                      path, errno_text(errno));
  }
  CUKILN_CHECK(check(file, path, what));
  return file;
}

Result<std::string> read_trusted_file(const std::string& path, const char* what,
                                      std::size_t max_bytes) {
  CUKILN_TRY(const UniqueFd file, open_trusted_file(path, what, O_RDONLY));
  std::string text;
  for (;;) {
    const std::size_t done = text.size();
    text.resize(done + kReadBytes);
    ssize_t got = 0;
    do {
      got = ::read(file.get(), text.data() + done, kReadBytes);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
      return make_error(ErrorCode::io, "cannot read {} {}: {}", what, path, errno_text(errno));
    }
    text.resize(done + static_cast<std::size_t>(got));
    if (text.size() > max_bytes) {
      return make_error(ErrorCode::invalid_argument, "{} {} has more than {} bytes", what, path,
                        max_bytes);
    }
    if (got == 0) {
      return text;
    }
  }
}

}  // namespace cukiln
