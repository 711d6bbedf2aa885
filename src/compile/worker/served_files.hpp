// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "wire/frame.hpp"
#include "wire/messages.hpp"

namespace cukiln::worker {

struct ServedFile {
  wire::FileKind kind = wire::FileKind::absent;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;  ///< what NVRTC is shown; known once it has looked
  SharedBytes bytes;
  std::uint32_t file = 0;  ///< the owner's number of it
  bool looked_at = false;
};

/// The file system as NVRTC sees it during one compile: what the owner says is at a path. Every
/// path is asked once. Outside a compile nothing is observed and libc does what it always does.
class ServedFiles {
 public:
  static ServedFiles& instance();

  /// Until `end`, every file access of this process is answered from here. `socket` may be null:
  /// then nothing is there but what `add` gave (the self-probe).
  void begin(wire::FrameSocket* socket, const std::string& unit_path);
  void add(const std::string& path, std::string bytes);
  /// Gives the paths that were looked at, in order of first use.
  std::vector<std::string> end();

  /// To be called for every file whose bytes NVRTC is given.
  void note_read(const ServedFile& file);
  /// Whether one of them spells a macro of the compile's date.
  bool uses_time() const noexcept { return uses_time_; }

  bool observing() const noexcept { return observing_; }

  /// What is at `path`, for as long as the compile runs.
  const ServedFile& find(const char* path);

  /// The absolute virtual path: a relative one is below the virtual working folder.
  static std::string absolute(const char* path);

 private:
  void ask(const std::string& path);
  void learn(wire::Answer answer);
  const ServedFile& look(const std::string& path, ServedFile& file);
  bool below_absent_folder(const std::string& path) const;

  std::atomic<bool> observing_ = false;
  std::atomic<bool> uses_time_ = false;
  std::mutex mutex_;  // NVRTC compiles on several threads when told to
  wire::FrameSocket* socket_ = nullptr;
  std::unordered_map<std::string, ServedFile> known_;
  std::vector<std::string> absent_folders_;  // each with a slash at its end
  std::vector<std::string> looked_at_;
  // Numbered in order of first use: what NVRTC sees does not depend on what was offered, or on
  // disks.
  std::unordered_map<std::uint32_t, std::uint64_t> inodes_;
};

}  // namespace cukiln::worker
