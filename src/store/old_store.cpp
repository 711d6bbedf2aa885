// SPDX-License-Identifier: Apache-2.0
#include "store/old_store.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/file.hpp"

namespace cukiln {

namespace {

constexpr const char* kOldFolder = "v1";
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHexDigits = "0123456789abcdef";

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_only(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

// The names of files in format 1. They never change: no version that writes them is released.
bool is_file_of_folder(std::string_view name) {
  return is_one_of(name, {"CURRENT", "writer.lock", "gc.lock", "keeper.lock", "reserve.bin"}) ||
         (name.starts_with("CURRENT.") && name.size() == 14);  // a temporary file of mkstemp
}
bool is_generation(std::string_view name) {
  return name.starts_with("gen-") && name.size() >= 8 && name.size() <= 16 &&
         has_only(name.substr(4), kDigits);
}
bool is_file_of_generation(std::string_view name) {
  return is_one_of(name, {"store.db", "store.db-wal", "store.db-shm", "inuse.lock"});
}
bool is_compile_lock(std::string_view name) {
  return name == "toolchain.lock" ||
         (name.ends_with(".lock") && name.size() == 37 && has_only(name.substr(0, 32), kHexDigits));
}

UniqueFd open_folder(int parent, const std::string& name) {
  return UniqueFd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  UniqueFd again = open_folder(folder, ".");
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(again ? ::fdopendir(again.get()) : nullptr,
                                                   ::closedir);
  if (stream == nullptr) {
    return names;
  }
  static_cast<void>(again.release());  // the stream closes it
  while (const dirent* entry = ::readdir(stream.get())) {
    names.emplace_back(entry->d_name);
  }
  return names;
}

/// An open folder of the old store, and the files in it that format 1 names.
class OldFolder {
 public:
  using IsNamed = bool (*)(std::string_view name);

  static std::optional<OldFolder> open(int parent, const std::string& name, uid_t user,
                                       IsNamed is_named) {
    OldFolder self;
    self.name_ = name;
    self.fd_ = open_folder(parent, name);
    struct stat status {};
    if (!self.fd_ || ::fstat(self.fd_.get(), &status) != 0 || status.st_uid != user ||
        (status.st_mode & S_IWUSR) == 0) {
      return std::nullopt;
    }
    for (std::string& file : names_in(self.fd_.get())) {
      if (is_named(file) &&
          ::fstatat(self.fd_.get(), file.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISREG(status.st_mode)) {
        self.files_.push_back(
            {std::move(file), static_cast<std::uint64_t>(status.st_size), status.st_mtime});
      }
    }
    return self;
  }

  int fd() const noexcept { return fd_.get(); }
  const std::string& name() const noexcept { return name_; }

  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const File& file : files_) {
      sum += file.bytes;
    }
    return sum;
  }
  bool is_younger_than(std::int64_t time_s) const {
    return std::any_of(files_.begin(), files_.end(),
                       [&](const File& file) { return file.modified_s >= time_s; });
  }
  /// Locks every lock file. False if another process holds one.
  bool lock(std::vector<UniqueFd>& held) const {
    for (const File& file : files_) {
      if (file.name.ends_with(".lock")) {
        UniqueFd fd(::openat(fd_.get(), file.name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
        if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
          return false;
        }
        held.push_back(std::move(fd));
      }
    }
    return true;
  }
  void remove(std::string_view name) const {
    for (const File& file : files_) {
      if (file.name == name) {
        ::unlinkat(fd_.get(), file.name.c_str(), 0);
      }
    }
  }
  /// Removes the files, and the folder unless another file is in it.
  void remove_all(int parent) const {
    for (const File& file : files_) {
      ::unlinkat(fd_.get(), file.name.c_str(), 0);
    }
    ::unlinkat(parent, name_.c_str(), AT_REMOVEDIR);
  }

 private:
  struct File {
    std::string name;
    std::uint64_t bytes;
    std::int64_t modified_s;
  };

  UniqueFd fd_;
  std::string name_;
  std::vector<File> files_;
};

}  // namespace

std::uint64_t remove_old_store(const std::string& directory, uid_t user,
                               std::int64_t unused_since_s, bool dry_run) {
  const UniqueFd top = open_folder(AT_FDCWD, directory);
  const auto root =
      top ? OldFolder::open(top.get(), kOldFolder, user, is_file_of_folder) : std::nullopt;
  if (!root) {
    return 0;
  }
  std::vector<OldFolder> below;
  for (const std::string& name : names_in(root->fd())) {
    auto folder = is_generation(name)
                      ? OldFolder::open(root->fd(), name, user, is_file_of_generation)
                  : name == "flights" ? OldFolder::open(root->fd(), name, user, is_compile_lock)
                                      : std::nullopt;
    if (folder) {
      below.push_back(*std::move(folder));
    }
  }
  std::uint64_t bytes = root->bytes();
  bool keep = root->is_younger_than(unused_since_s);
  for (const OldFolder& folder : below) {
    bytes += folder.bytes();
    keep = keep || folder.is_younger_than(unused_since_s);
  }
  std::vector<UniqueFd> locks;
  keep = keep || !root->lock(locks);
  for (const OldFolder& folder : below) {
    keep = keep || (is_generation(folder.name()) && !folder.lock(locks));
  }
  if (!keep && !dry_run) {
    // CURRENT first: a process that opens the store now starts a new generation.
    root->remove("CURRENT");
    for (const OldFolder& folder : below) {
      folder.remove_all(root->fd());
    }
    root->remove_all(top.get());
  }
  for (const UniqueFd& lock : locks) {
    ::flock(lock.get(), LOCK_UN);  // explicit: a child forked just now may have a copy of it
  }
  return keep ? 0 : bytes;
}

}  // namespace cukiln
