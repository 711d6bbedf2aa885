// SPDX-License-Identifier: Apache-2.0
#include "core/base/folder_watch.hpp"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace cukiln {

namespace {

// Editors write a file in place, or write another and rename it. Checkouts unlink and create.
constexpr std::uint32_t kEvents = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM |
                                  IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR |
                                  IN_EXCL_UNLINK;
constexpr std::uint32_t kFolderGone = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED;
constexpr std::size_t kEventBytes = 16 << 10;

FileStamp stamp_now(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? stamp_of(status) : FileStamp{};
}

bool is_same_folder(const FileStamp& a, const FileStamp& b) {
  return a.device == b.device && a.inode == b.inode;
}

/// The file that a symbolic link resolves to; empty if `path` is no link, or a broken one.
std::string target_of_link(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) {
    return {};
  }
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : std::string();
}

}  // namespace

FolderWatch::FolderWatch(Options options)
    : options_(options), inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

void FolderWatch::watch(const std::string& path, Folder& folder) {
  folder.stamp = stamp_now(path);
  folder.limited = false;
  if (folder.stamp == FileStamp{}) {
    return;
  }
  if (by_watch_.size() >= options_.max_folders) {
    folder.limited = true;
    return;
  }
  const auto add_watch = options_.add_watch != nullptr ? options_.add_watch : &::inotify_add_watch;
  folder.watch = add_watch(inotify_.get(), path.c_str(), kEvents);
  if (folder.watch >= 0) {
    by_watch_[folder.watch].insert(path);
  } else {  // EBADF: inotify_init1 failed
    folder.limited = errno == ENOSPC || errno == ENOMEM || errno == EBADF;
  }
}

FolderWatch::Stats FolderWatch::stats() const {
  Stats stats{by_watch_.size(), events_, overflows_, 0};
  for (const auto& [path, folder] : folders_) {
    stats.limited += folder.limited ? 1 : 0;
  }
  for (const auto& [subject, files_of_subject] : by_subject_) {
    stats.limited += files_of_subject.skipped;
  }
  return stats;
}

void FolderWatch::unwatch(Folders::iterator at) {
  if (const auto known = by_watch_.find(at->second.watch); known != by_watch_.end()) {
    known->second.erase(at->first);
    if (known->second.empty()) {
      ::inotify_rm_watch(inotify_.get(), at->second.watch);
      by_watch_.erase(known);
    }
  }
  folders_.erase(at);
}

void FolderWatch::add(Subject subject, const std::string& path) {
  SubjectFiles& files_of_subject = by_subject_[subject];
  if (path.size() < 2 || path.front() != '/' || files_of_subject.paths.contains(path)) {
    return;
  }
  if (files_.size() >= options_.max_files && !files_.contains(path)) {
    ++files_of_subject.skipped;
    return;
  }
  files_of_subject.paths.insert(path);
  const std::string parent = folder_of(path);
  const auto [at, is_new] = folders_.try_emplace(parent);
  Folder& folder = at->second;
  if (is_new || folder.stamp == FileStamp{}) {
    watch(parent, folder);
  }
  const bool is_there = folder.stamp != FileStamp{};
  folder.files.insert(path);
  File& file = files_[path];
  if (file.subjects.empty()) {
    file.stamp = stamp_now(path);
  }
  file.subjects.insert(subject);
  if (!is_there) {
    add(subject, parent);  // the nearest existing folder reports that it appears
  } else if (const std::string target = target_of_link(path); !target.empty()) {
    add(subject, target);
  }
}

void FolderWatch::release(const std::string& path, Subject subject) {
  const auto file = files_.find(path);
  file->second.subjects.erase(subject);
  if (!file->second.subjects.empty()) {
    return;
  }
  files_.erase(file);
  const auto folder = folders_.find(folder_of(path));
  folder->second.files.erase(path);
  if (folder->second.files.empty()) {
    unwatch(folder);
  }
}

void FolderWatch::set(Subject subject, const std::vector<std::string>& files) {
  // Add before releasing, so that the watch of a folder with old and new files has no gap.
  const std::set<std::string> before = std::exchange(by_subject_[subject], {}).paths;
  for (const std::string& file : files) {
    add(subject, file);
  }
  const std::set<std::string>& now = by_subject_[subject].paths;
  for (const std::string& path : before) {
    if (!now.contains(path)) {
      release(path, subject);
    }
  }
  if (now.empty()) {
    by_subject_.erase(subject);
  }
}

void FolderWatch::drop(Subject subject) { set(subject, {}); }

void FolderWatch::check_file(const std::string& path, Subjects& changed) {
  const auto at = files_.find(path);
  if (at == files_.end()) {
    return;
  }
  File& file = at->second;
  const FileStamp now = stamp_now(path);
  if (now != file.stamp) {
    file.stamp = now;
    changed.insert(file.subjects.begin(), file.subjects.end());
  }
}

void FolderWatch::check_folder(const Folder& folder, Subjects& changed) {
  for (const std::string& path : folder.files) {
    check_file(path, changed);
  }
}

/// Adds new watches for the paths of a folder that was renamed, removed or unmounted. All subjects
/// with files there count as changed, so that their files are set again.
void FolderWatch::watch_again(int watch, Subjects& changed) {
  const auto known = by_watch_.find(watch);
  if (known == by_watch_.end()) {
    return;
  }
  ::inotify_rm_watch(inotify_.get(), watch);  // fails unless the folder was renamed
  const std::set<std::string> paths = std::move(known->second);
  by_watch_.erase(known);
  for (const std::string& path : paths) {
    Folder& folder = folders_.at(path);
    folder.watch = -1;
    this->watch(path, folder);
    for (const std::string& file : folder.files) {
      check_file(file, changed);
      const Subjects& subjects = files_.at(file).subjects;
      changed.insert(subjects.begin(), subjects.end());
    }
  }
}

FolderWatch::Subjects FolderWatch::take_changes() {
  Subjects changed;
  alignas(inotify_event) std::array<char, kEventBytes> buffer;
  for (;;) {
    const ssize_t got = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (got <= 0) {
      return changed;
    }
    for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const char* const name = buffer.data() + at + sizeof event;
      at += sizeof event + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) {
        ++overflows_;
        for (const auto& [path, folder] : folders_) {
          check_folder(folder, changed);
        }
        continue;
      }
      if ((event.mask & kFolderGone) != 0) {
        watch_again(event.wd, changed);
        continue;
      }
      const auto known = by_watch_.find(event.wd);
      if (known == by_watch_.end() || event.len == 0) {
        continue;
      }
      for (const std::string& folder : known->second) {
        const std::string path = join_path(folder, name);
        if (files_.contains(path)) {
          ++events_;
          check_file(path, changed);
        }
      }
    }
  }
}

FolderWatch::Subjects FolderWatch::check_all() {
  Subjects changed;
  std::set<int> lost;
  for (auto& [path, folder] : folders_) {
    // Watched folders too: changes by another machine on a network file system cause no event.
    check_folder(folder, changed);
    const FileStamp now = stamp_now(path);
    if (is_same_folder(now, folder.stamp)) {
      if (folder.watch < 0 && now != FileStamp{}) {
        watch(path, folder);  // a watch may be free by now
      }
    } else if (folder.watch >= 0) {
      lost.insert(folder.watch);
    } else {
      watch(path, folder);
    }
  }
  for (const int watch : lost) {
    watch_again(watch, changed);
  }
  return changed;
}

}  // namespace cukiln
