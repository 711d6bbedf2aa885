// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/file.hpp"

namespace cukiln {

/// Detects that files changed, appeared or vanished: events of inotify on their folders say which
/// files to check, and their stamps whether they changed. `check_all` finds what inotify does not
/// report: without a free watch, in a folder that cannot be watched or whose parent was renamed,
/// and changes by other machines. Threads: one.
class FolderWatch {
 public:
  struct Options {
    std::size_t max_folders = 1024;
    std::size_t max_files = 32768;
    /// For tests. Null: inotify_add_watch.
    int (*add_watch)(int, const char*, std::uint32_t) = nullptr;
  };
  explicit FolderWatch(Options options);

  /// The caller's number for what depends on a set of files.
  using Subject = std::uint64_t;
  using Subjects = std::set<Subject>;

  /// Replaces the files of a subject. Paths are absolute; the files need not exist.
  void set(Subject subject, const std::vector<std::string>& files);
  void drop(Subject subject);

  /// Readable while there are events.
  int fd() const noexcept { return inotify_.get(); }
  /// Reads the events and returns the subjects with a changed file. The caller must `set` the files
  /// of each again.
  Subjects take_changes();
  /// Checks all files and returns the subjects with a changed one, as take_changes.
  Subjects check_all();

  struct Stats {
    std::uint64_t folders = 0;    ///< watched now
    std::uint64_t events = 0;     ///< about watched files
    std::uint64_t overflows = 0;  ///< of the kernel's event queue; all files were checked
    std::uint64_t limited = 0;    ///< folders and files that are not watched because of a limit
  };
  Stats stats() const;
  bool empty() const noexcept { return files_.empty(); }

 private:
  struct File {
    FileStamp stamp;  ///< zero if the file does not exist
    Subjects subjects;
  };
  struct Folder {
    int watch = -1;        ///< of inotify; -1: the folder is only checked by check_all
    bool limited = false;  ///< there is no watch because of a limit
    FileStamp stamp;       ///< when the watch was added, to recognise another folder at the path
    std::set<std::string> files;
  };
  using Folders = std::map<std::string, Folder>;

  void add(Subject subject, const std::string& path);
  void watch(const std::string& path, Folder& folder);
  void unwatch(Folders::iterator at);
  void release(const std::string& path, Subject subject);
  void check_file(const std::string& path, Subjects& changed);
  void check_folder(const Folder& folder, Subjects& changed);
  void watch_again(int watch, Subjects& changed);

  const Options options_;
  const UniqueFd inotify_;
  Folders folders_;
  std::unordered_map<std::string, File> files_;
  struct SubjectFiles {
    std::set<std::string> paths;
    std::uint64_t skipped = 0;
  };
  std::unordered_map<Subject, SubjectFiles> by_subject_;
  std::unordered_map<int, std::set<std::string>> by_watch_;  // one folder may have several paths
  std::uint64_t events_ = 0, overflows_ = 0;
};

}  // namespace cukiln
