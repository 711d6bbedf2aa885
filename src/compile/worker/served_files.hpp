#pragma once

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
  std::uint64_t inode = 0;
  SharedBytes bytes;
  bool offered = false;  ///< told before it was asked, and not looked at yet
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
  struct Unasked {
    std::vector<std::string> inferred_absent;
    std::vector<std::string> used;
  };
  /// Gives the paths that were looked at and had no question.
  Unasked end();

  bool observing() const noexcept { return observing_; }

  /// What is at `path`, for as long as the compile runs.
  const ServedFile& find(const char* path);

 private:
  const ServedFile& ask(const std::string& path);
  void learn(wire::Answer answer, bool offered);
  bool below_absent_folder(const std::string& path) const;

  std::atomic<bool> observing_ = false;
  std::mutex mutex_;  // NVRTC compiles on several threads when told to
  wire::FrameSocket* socket_ = nullptr;
  std::unordered_map<std::string, ServedFile> known_;
  std::vector<std::string> absent_folders_;  // each with a slash at its end
  Unasked unasked_;
};

}  // namespace cukiln::worker
