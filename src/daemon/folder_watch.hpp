// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.hpp"

namespace cukiln::daemon {

/// Notices that files changed, appeared or went: inotify on their folders says where to look, their
/// stamps say whether something is different. What inotify cannot tell (no watch is left, a folder
/// that may not be watched, one that was renamed from above, changes by another machine) is found
/// by `look_again`. One thread's.
class FolderWatch {
 public:
  struct Options {
    std::size_t max_folders = 1024;
    std::size_t max_files = 32768;
    int (*add_watch)(int, const char*, std::uint32_t) = nullptr;  ///< inotify_add_watch; tests
  };
  explicit FolderWatch(Options options);

  /// Whose files they are.
  using Subject = std::uint64_t;
  using Subjects = std::set<Subject>;

  /// From now on these files, absolute, are the subject's, and no others. They need not be there.
  void set(Subject subject, const std::vector<std::string>& files);
  void drop(Subject subject);

  /// Readable when there is something to take.
  int fd() const noexcept { return inotify_.get(); }
  /// Those of whose files inotify told that one changed. Each is to be `set` again.
  Subjects take_changes();
  /// Those of whose files one changed, by a look at all that inotify does not speak for. Likewise.
  Subjects look_again();

  struct Stats {
    std::uint64_t folders = 0;    ///< watched now
    std::uint64_t events = 0;     ///< about files of somebody's
    std::uint64_t overflows = 0;  ///< the kernel dropped events, and everything was looked at
    std::uint64_t limited = 0;    ///< folders and files that are not watched now, for a limit
  };
  Stats stats() const;
  bool empty() const noexcept { return files_.empty(); }

 private:
  struct File {
    FileStamp stamp;  ///< zeros: nothing is there
    Subjects subjects;
  };
  struct Folder {
    int watch = -1;        ///< inotify's number; none: it is looked at
    bool limited = false;  ///< none, because there are too many
    FileStamp stamp;       ///< when it was watched: another device or inode is another folder
    std::set<std::string> files;
  };
  using Folders = std::map<std::string, Folder>;

  void add(Subject subject, const std::string& path);
  void watch(const std::string& path, Folder& folder);
  void unwatch(Folders::iterator at);
  void release(const std::string& path, Subject subject);
  void look_at(const std::string& path, Subjects& changed);
  void look_at_all_in(const Folder& folder, Subjects& changed);
  void lose(int watch, Subjects& changed);

  const Options options_;
  const UniqueFd inotify_;
  Folders folders_;
  std::unordered_map<std::string, File> files_;
  struct Own {
    std::set<std::string> paths;
    std::uint64_t left_out = 0;
  };
  std::unordered_map<Subject, Own> of_subject_;
  std::unordered_map<int, std::set<std::string>> by_watch_;  // one folder may have several paths
  std::uint64_t events_ = 0, overflows_ = 0;
};

}  // namespace cukiln::daemon
