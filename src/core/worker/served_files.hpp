// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/wire/frame.hpp"
#include "core/wire/messages.hpp"

namespace cukiln::worker {

/// What is at a path during a compile.
struct ServedFile {
  wire::FileKind kind = wire::FileKind::absent;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;  ///< as shown to NVRTC; assigned at the first access
  SharedBytes bytes;
  std::uint32_t file = 0;  ///< the owner's number for it
  bool accessed = false;
};

/// The file system that NVRTC sees during one compile, served by the owner, who is asked at most
/// once for each path. Outside a compile nothing is observed, and the interposed functions behave
/// as libc's. Threads: safe between `begin` and `end`, which one thread calls.
class ServedFiles {
 public:
  static ServedFiles& instance();

  /// From now on until `end`, every file access of this process is served from here. If `socket` is
  /// null, only files from `add` exist (for the self-probe).
  void begin(wire::FrameSocket* socket, const std::string& unit_path);
  /// The same for a program with real names: nothing is assumed about the folders above it, and a
  /// relative path is relative to `working_folder`.
  void begin_program(wire::FrameSocket* socket, const std::string& working_folder);
  void add(const std::string& path, std::string bytes);
  /// Returns the accessed paths, in order of first access.
  std::vector<std::string> end();

  /// From now on, files that name themselves are read `with_unusable_names`, or as they are.
  void make_names_unusable(bool unusable);
  /// Whether a file was read so, and whether NVRTC then looked for a file of such a name.
  bool made_names_unusable() const noexcept { return made_unusable_; }
  bool looked_for_unusable_name() const noexcept { return looked_for_unusable_; }
  /// Whether a file was read that may paste raw strings, those of CUDA's libraries not counted.
  bool pastes_raw_strings() const noexcept { return pastes_raw_strings_; }

  /// Must be called for every file that is read. Returns the bytes to give to NVRTC.
  SharedBytes note_read(std::string_view path, const ServedFile& file);
  /// Whether a file that was read spells a date macro.
  bool uses_time() const noexcept { return uses_time_; }
  /// Whether a file that was read names itself, the headers of CUDA's libraries not counted.
  bool names_files() const;

  bool observing() const noexcept { return observing_; }

  /// What is at `path`. The reference is valid until `end`.
  const ServedFile& find(const char* path);

  /// The absolute path; a relative one is resolved against the working directory that NVRTC sees.
  std::string absolute(const char* path) const;
  /// That directory.
  const std::string& working_folder() const noexcept { return working_folder_; }

 private:
  bool is_of_cuda(std::string_view path) const;
  bool is_builtin_name(std::string_view path) const;
  void ask(const std::string& path);
  void add_answer(wire::Answer answer);
  const ServedFile& record_access(const std::string& path, ServedFile& file);
  bool below_absent_folder(const std::string& path) const;

  std::atomic<bool> observing_ = false;
  std::atomic<bool> uses_time_ = false;
  std::atomic<bool> makes_unusable_ = false;
  std::atomic<bool> made_unusable_ = false;
  std::atomic<bool> looked_for_unusable_ = false;
  std::atomic<bool> pastes_raw_strings_ = false;
  mutable Mutex mutex_;  // NVRTC may compile on several threads (--split-compile)
  wire::FrameSocket* socket_ = nullptr;
  std::string working_folder_;
  std::unordered_map<std::string, ServedFile> known_;
  std::vector<std::string> absent_folders_;  // each with a slash at its end
  std::vector<std::string> accessed_;
  std::vector<std::string> naming_files_;  // those that name themselves, read as they are
  std::vector<std::string> cuda_folders_;  // of CUDA's libraries, as …/cub/
  // By the owner's file number. Inodes are assigned in order of first access, so that NVRTC sees
  // the same ones whatever was sent ahead, and on every file system.
  std::unordered_map<std::uint32_t, std::uint64_t> inodes_;
};

}  // namespace cukiln::worker
