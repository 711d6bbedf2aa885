// SPDX-License-Identifier: Apache-2.0
#include "core/store/store_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "core/base/file.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kGenerationPrefix = "gen-";
constexpr const char* kCurrent = "CURRENT";
constexpr time_t kLockFileRetentionS = 60;  // a file that was just created is not locked yet

/// Returns the number in `gen-0001`; 0 for any other name.
std::uint64_t generation_number(std::string_view name) noexcept {
  if (name.substr(0, kGenerationPrefix.size()) != kGenerationPrefix) {
    return 0;
  }
  name.remove_prefix(kGenerationPrefix.size());
  if (name.size() < 4 || name.size() > 12) {
    return 0;
  }
  std::uint64_t number = 0;
  for (const char digit : name) {
    if (digit < '0' || digit > '9') {
      return 0;
    }
    number = number * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  return number;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), ::closedir);
  while (stream) {
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) {
      break;
    }
    names.emplace_back(entry->d_name);
  }
  return names;
}

/// Like `mkdir -p`. True if it was created, false if it existed.
Result<bool> make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) {
    return true;
  }
  if (errno == EEXIST) {
    return false;
  }
  const int first_error = errno;
  const std::size_t slash = path.rfind('/');
  if (first_error == ENOENT && slash != std::string::npos && slash > 0) {
    CUKILN_TRY([[maybe_unused]] const bool parent, make_folder(path.substr(0, slash)));
    if (::mkdir(path.c_str(), 0700) == 0) {
      return true;
    }
    if (errno == EEXIST) {
      return false;
    }
  }
  return make_error(ErrorCode::io, "cannot create the folder {}: {}", path, errno_text(errno));
}

/// Resolves the parent of a path and appends the last component. Folders above the store may be
/// symbolic links; the store itself may not, and SQLite is opened with SQLITE_OPEN_NOFOLLOW.
Result<std::string> resolve_parent(std::string directory) {
  while (directory.size() > 1 && directory.back() == '/') {
    directory.pop_back();
  }
  const std::size_t slash = directory.rfind('/');
  const std::string name = directory.substr(slash + 1);
  const bool whole = name.empty() || name == "." || name == "..";
  const std::string parent = whole ? directory : folder_of(directory);
  char resolved[PATH_MAX];
  if (::realpath(parent.c_str(), resolved) == nullptr) {
    return make_error(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                      "cannot reach the folder {}: {}", parent, errno_text(errno));
  }
  return whole ? std::string(resolved) : join_path(resolved, name);
}

/// True for the digest of a request, 64 hex digits, followed by `.lock`.
bool is_compile_lock(std::string_view name) {
  const std::size_t digits = std::min(name.find_first_not_of("0123456789abcdef"), name.size());
  return digits == 64 && name.substr(digits) == ".lock";
}

void unlink_if_unlocked(const std::string& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
    ::unlink(file.c_str());
  }
}

bool is_empty(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder);
  return std::all_of(names.begin(), names.end(),
                     [](const std::string& name) { return name == "." || name == ".."; });
}

}  // namespace

Result<StoreDirectory> StoreDirectory::prepare(const std::string& directory, const Rules& rules,
                                               const HostFacts& facts) {
  if (directory.empty() || directory.front() != '/') {
    return make_error(ErrorCode::invalid_argument,
                      "the store's directory is \"{}\"; expected an absolute path", directory);
  }
  struct stat status {};
  auto parent = resolve_parent(directory);
  if (!parent && parent.error().code() == ErrorCode::not_found && !rules.system) {
    CUKILN_CHECK(make_folder(directory));
    parent = resolve_parent(directory);
  }
  if (!parent) {
    return std::move(parent).error();
  }
  const std::string& top = *parent;
  StoreDirectory self(join_path(top, CUKILN_STORE_FOLDER), rules, facts);

  int failed = facts.status(top, &status);
  if (failed == ENOENT && !rules.system) {
    CUKILN_CHECK(make_folder(top));
    failed = facts.status(top, &status);
  }
  if (failed != 0) {
    return make_error(failed == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                      "cannot use the folder {}: {}", top, errno_text(failed));
  }
  if (!rules.system && S_ISDIR(status.st_mode) && status.st_uid == facts.user() &&
      (status.st_mode & 0222) == 0200 && (status.st_mode & 0055) != 0 && is_empty(top)) {
    // An empty folder that the user created with the usual umask becomes the store's. One without
    // the owner's write bit stays as it is.
    ::chmod(top.c_str(), 0700);
    static_cast<void>(facts.status(top, &status));  // for the check below
  }
  CUKILN_CHECK(self.check(top, status, true));
  const bool is_top_of_root = status.st_uid == 0;
  const unsigned top_mode = status.st_mode & 0777;
  const bool sealed = (top_mode & 0200) == 0;

  if (const char* network = network_file_system_name(facts.file_system_type(top));
      network != nullptr && !rules.allow_network_file_system) {
    return make_error(
        ErrorCode::invalid_argument,
        "{} is on {}, where SQLite's locks and shared memory do not work; choose a local "
        "directory, or allow network file systems if one host alone uses it",
        top, network);
  }

  failed = facts.status(self.root_, &status);
  if (failed == ENOENT && !rules.system && !sealed) {
    CUKILN_CHECK(make_folder(self.root_));
    failed = facts.status(self.root_, &status);
  }
  if (failed == ENOENT && sealed && !rules.system) {
    return make_error(ErrorCode::not_found,
                      "the folder {} has mode {:04o}, read-only, and contains no store: chmod "
                      "700 {}, or choose another directory",
                      top, top_mode, top);
  }
  if (failed == 0 && rules.system &&
      ::faccessat(AT_FDCWD, self.root_.c_str(), R_OK | X_OK, AT_EACCESS) != 0) {
    failed = errno;
  }
  if (failed != 0) {
    const bool closed = rules.system && failed == EACCES;
    return make_error(failed == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                      "cannot use the folder {}: {}{}{}", self.root_, errno_text(failed),
                      closed ? "; to share it, its owner runs: chmod -R a+rX " : "",
                      closed ? top : std::string());
  }
  CUKILN_CHECK(self.check(self.root_, status, true));
  self.is_of_root_ = rules.system && is_top_of_root && status.st_uid == 0;
  self.read_only_ = rules.system || sealed || (status.st_mode & 0200) == 0 ||
                    ::faccessat(AT_FDCWD, self.root_.c_str(), W_OK, AT_EACCESS) != 0;
  return self;
}

std::string StoreDirectory::why_read_only() const {
  if (!read_only_) {
    return "a newer cukiln wrote it: use that version, or another directory";
  }
  if (::access(root_.c_str(), W_OK) != 0 && errno == EROFS) {
    return "its file system is mounted read-only; choose another directory";
  }
  struct stat status {};
  const std::string top = folder_of(root_);
  const bool is_below = ::stat(top.c_str(), &status) == 0 && (status.st_mode & S_IWUSR) != 0;
  return "to store them: chmod 700 " + (is_below ? root_ : top);
}

Result<void> StoreDirectory::check(const std::string& path, const struct stat& status,
                                   bool folder) const {
  if (S_ISLNK(status.st_mode)) {
    return make_error(
        ErrorCode::invalid_argument,
        "{} is a symbolic link, which the store does not follow; give the path that it "
        "points to",
        path);
  }
  if (folder ? !S_ISDIR(status.st_mode) : !S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::invalid_argument, "{} is not a {}; {}move it away", path,
                      folder ? "directory" : "regular file",
                      folder ? "choose another path, or " : "");
  }
  const uid_t user = facts_->user();
  if (status.st_uid != user && !(rules_.system && status.st_uid == 0)) {
    return make_error(ErrorCode::invalid_argument,
                      "{} belongs to user {}, expected {}{}: files of other users are not trusted; "
                      "choose a directory of your own",
                      path, status.st_uid, user, rules_.system ? " or root" : "");
  }
  // A store that its owner cannot write, sealed for a container image, may be readable by others.
  const bool sealed = rules_.system || (status.st_mode & 0200) == 0;
  const unsigned forbidden = sealed ? 0022 : 0077;
  const unsigned mode = status.st_mode & 0777;
  if ((mode & forbidden) != 0) {
    return make_error(ErrorCode::invalid_argument,
                      "{} has mode {:04o}, open to other users; expected {}: chmod {} {}", path,
                      mode, folder ? "0700" : "0600",
                      rules_.system ? "go-w" : (folder ? "700" : "600"), path);
  }
  return {};
}

Result<void> StoreDirectory::check_folder(const std::string& path) const {
  struct stat status {};
  if (const int failed = facts_->status(path, &status); failed != 0) {
    return make_error(failed == ENOENT ? ErrorCode::not_found : ErrorCode::io, "cannot use {}: {}",
                      path, errno_text(failed));
  }
  return check(path, status, true);
}

Result<void> StoreDirectory::check_file(const std::string& path) const {
  struct stat status {};
  if (const int failed = facts_->status(path, &status); failed != 0) {
    if (failed == ENOENT) {
      return {};
    }
    return make_error(ErrorCode::io, "cannot use {}: {}", path, errno_text(failed));
  }
  return check(path, status, false);
}

std::string StoreDirectory::path(std::string_view name) const { return join_path(root_, name); }

Result<std::string> StoreDirectory::current() const {
  CUKILN_TRY(const FileContent file, read_file(path(kCurrent), 64));
  std::string name(file.bytes.view());
  while (!name.empty() && name.back() == '\n') {
    name.pop_back();
  }
  if (generation_number(name) == 0) {
    return make_error(ErrorCode::corrupt,
                      "{} does not name a generation; expected gen-0001 or later", path(kCurrent));
  }
  return name;
}

Result<void> StoreDirectory::set_current(const std::string& generation) const {
  return write_file_atomically(path(kCurrent), generation + "\n");
}

Result<std::string> StoreDirectory::make_generation() const {
  std::uint64_t highest = 0;
  for (const std::string& name : names_in(root_)) {
    highest = std::max(highest, generation_number(name));
  }
  std::string name = fmt::format("{}{:04}", kGenerationPrefix, highest + 1);
  if (::mkdir(path(name).c_str(), 0700) != 0) {
    return make_error(ErrorCode::io, "cannot create the folder {}: {}", path(name),
                      errno_text(errno));
  }
  return name;
}

std::vector<std::string> StoreDirectory::generations() const {
  std::vector<std::string> found = names_in(root_);
  found.erase(std::remove_if(found.begin(), found.end(),
                             [](const std::string& name) { return generation_number(name) == 0; }),
              found.end());
  std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
    return generation_number(a) < generation_number(b);
  });
  return found;
}

void StoreDirectory::remove_generation(const std::string& generation) const {
  const std::string folder = path(generation);
  for (const std::string& name : names_in(folder)) {
    if (name == "store.db" || name == "store.db-wal" || name == "store.db-shm" ||
        name == "inuse.lock") {
      ::unlink(join_path(folder, name).c_str());
    }
  }
  ::rmdir(folder.c_str());
}

void StoreDirectory::remove_stray_files() const {
  for (const std::string& name : names_in(root_)) {
    const std::string_view start = "CURRENT.";
    if (name.size() == start.size() + 6 && name.starts_with(start)) {  // mkstemp's six
      ::unlink(path(name).c_str());
    }
  }
  const std::string locks = path("flights");
  for (const std::string& name : names_in(locks)) {
    struct stat status {};
    const std::string file = join_path(locks, name);
    const bool is_old = is_compile_lock(name) && ::lstat(file.c_str(), &status) == 0 &&
                        status.st_mtime + kLockFileRetentionS < ::time(nullptr);
    if (is_old) {
      unlink_if_unlocked(file);
    }
  }
}

Result<std::string> StoreDirectory::folder(std::string_view name) const {
  std::string made = path(name);
  if (::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) {
    return make_error(ErrorCode::io, "cannot create the folder {}: {}", made, errno_text(errno));
  }
  CUKILN_CHECK(check_folder(made));
  return made;
}

}  // namespace cukiln
