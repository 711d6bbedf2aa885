// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/unread_files.hpp"

#include <sys/stat.h>

#include <iterator>

namespace cukiln::daemon {

bool UnreadFiles::add(const Reader& reader, int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) {
    return false;
  }
  constexpr std::uint64_t kBlockBytes = 512;  // the unit of st_blocks
  const std::uint64_t bytes = static_cast<std::uint64_t>(status.st_blocks) * kBlockBytes;
  if (!reader.has_unread()) {
    remove(reader);
  }
  if (!has_room(reader, status.st_ino, bytes)) {
    remove_read();  // here and not when a client reads, because nothing reports that
    if (!has_room(reader, status.st_ino, bytes)) {
      return false;
    }
  }
  Held& held = held_[&reader];  // what may throw comes before all that counts
  File& counted = files_[status.st_ino];
  if (held.files.insert(status.st_ino).second) {
    held.bytes += bytes;
    if (++counted.readers == 1) {
      counted.bytes = bytes;
      all_ += bytes;
    }
  }
  return true;
}

bool UnreadFiles::has_room(const Reader& reader, ino_t file, std::uint64_t bytes) const {
  const auto held = held_.find(&reader);
  return limit_.allows(held != held_.end() ? held->second.bytes : 0, all_,
                       files_.contains(file) ? 0 : bytes);
}

void UnreadFiles::remove(const Reader& reader) noexcept {
  const auto held = held_.find(&reader);
  if (held == held_.end()) {
    return;
  }
  for (const ino_t file : held->second.files) {
    const auto counted = files_.find(file);
    if (--counted->second.readers == 0) {
      all_ -= counted->second.bytes;
      files_.erase(counted);
    }
  }
  held_.erase(held);
}

void UnreadFiles::remove_read() noexcept {
  for (auto next = held_.begin(); next != held_.end();) {
    const Reader& reader = *(next++)->first;
    if (!reader.has_unread()) {
      remove(reader);
    }
  }
}

}  // namespace cukiln::daemon
