// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/upload_marks.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/file.hpp"
#include "core/base/serial.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kObjectNameBytes = sizeof(ObjectName::bytes);
constexpr std::size_t kMarkBytes = kObjectNameBytes + sizeof(std::uint64_t);
// Other processes add to the file too: they rewrite it before it is as long.
constexpr auto kMaxFileBytes = static_cast<off_t>(4 * UploadMarks::kMaxMarks * kMarkBytes);

std::string encode(const ObjectName& name, std::int64_t time_s) {
  SerialWriter out;
  out.raw(view_of(name)).u64(static_cast<std::uint64_t>(time_s));
  return out.take();
}

}  // namespace

void UploadMarks::open(std::string path, const Clock& clock) {
  path_ = std::move(path);
  clock_ = &clock;
  read_new();
}

/// A mark that was written in part, or is damaged, is the name of no object.
void UploadMarks::read_new() {
  const UniqueFd file(
      path_.empty() ? -1 : ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return;
  }
  if (status.st_ino != inode_ || status.st_size < read_) {
    inode_ = status.st_ino;
    read_ = 0;
  }
  std::string bytes(
      static_cast<std::size_t>(std::min<off_t>(status.st_size - read_, kMaxFileBytes)), '\0');
  const ssize_t count = ::pread(file.get(), bytes.data(), bytes.size(), read_);
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  read_ += static_cast<off_t>(bytes.size());
  SerialReader in(bytes);
  while (in.remaining() >= kMarkBytes) {
    const auto name = digest_from<ObjectName>(in.raw(kObjectNameBytes));
    set(name, static_cast<std::int64_t>(in.u64()));
  }
}

bool UploadMarks::has(const ObjectName& name) {
  auto at = times_.find(name);
  if (at == times_.end()) {
    read_new();
    at = times_.find(name);
  }
  return at != times_.end() && is_fresh(at->second);
}

void UploadMarks::set(const ObjectName& name, std::int64_t time_s) {
  if (is_fresh(time_s)) {
    times_[name] = time_s;
  } else {
    times_.erase(name);
  }
}

void UploadMarks::write(const ObjectName& name, std::int64_t time_s) {
  set(name, time_s);
  if (times_.size() > kMaxMarks || read_ % static_cast<off_t>(kMarkBytes) != 0 ||
      read_ > kMaxFileBytes / 2) {
    rewrite();
    return;
  }
  if (path_.empty()) {
    return;
  }
  // One write, so that the marks of several processes do not mix.
  const UniqueFd file(
      ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file) {
    write_all(file.get(), encode(name, time_s));
  }
}

void UploadMarks::retain(const std::function<bool(const ObjectName&)>& keeps) {
  std::erase_if(times_, [&](const auto& mark) { return !keeps(mark.first); });
  rewrite();
}

/// What another process adds meanwhile is lost, and uploaded once more.
void UploadMarks::rewrite() {
  std::vector<std::pair<std::int64_t, ObjectName>> marks;
  for (const auto& [name, time_s] : times_) {
    marks.emplace_back(time_s, name);
  }
  std::sort(marks.begin(), marks.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  marks.resize(marks.size() > kMaxMarks ? kMaxMarks / 2 : marks.size());
  times_.clear();
  std::string bytes;
  for (const auto& [time_s, name] : marks) {
    times_[name] = time_s;
    bytes += encode(name, time_s);
  }
  if (!path_.empty() && write_file_atomically(path_, bytes)) {
    read_ = static_cast<off_t>(bytes.size());
    struct stat status = {};
    inode_ = ::stat(path_.c_str(), &status) == 0 ? status.st_ino : 0;
  }
}

}  // namespace cukiln
