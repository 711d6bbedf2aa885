// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/logger.hpp"
#include "base/mutex.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Something that an administrator may have to account for later.
struct AuditEvent {
  /// `started`, `stopped`, `reloaded`, `setting`, `rejected`, `declined`, `compiled` or `entry`; of
  /// a signer `signed`, `not_signed`, `rejected` or `stopped`.
  const char* event = "";
  uid_t user = 0;
  pid_t process = 0;  ///< 0: not known
  std::vector<std::pair<const char*, std::string>> texts{};
  std::vector<std::pair<const char*, std::uint64_t>> numbers{};
};

/// Records who compiled what, who got which key, rejections and changes of settings: one JSON
/// object a line, in ASCII, so that no text of a client can forge or hide a line. Equal events of a
/// short time become one with a `count`. The file is rotated by size. A thread of its own writes;
/// if it does not keep up, or the disk is full, events are dropped and their number is recorded as
/// `lost`. Each line has a number, `seq`, that grows by one. Threads: safe.
class AuditLog {
 public:
  struct Options {
    /// A file; or `journal`, or `journal:PATH` for another socket of journald than the system's.
    std::string where;
    std::uint64_t max_bytes = 16 << 20;  ///< of one file
    unsigned kept_files = 4;             ///< older ones: `PATH.1` is the youngest
    std::size_t max_queued = 4096;       ///< events that are not written yet
    std::chrono::milliseconds interval{200};
  };
  /// Errors: io, invalid_argument (the file is a link, or belongs to another user).
  static Result<std::unique_ptr<AuditLog>> open(Options options, Logger log);
  /// Writes what is queued.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  /// Queues an event. Does not block on a disk.
  void record(AuditEvent event) noexcept;
  /// Counts that a process got an entry. Cheaper than `record`.
  void record_entry(uid_t user, pid_t process, const CacheKey& key) noexcept;

 private:
  struct Queued {
    std::chrono::system_clock::time_point at;
    AuditEvent event;
    std::uint64_t count = 1;
  };
  using EntryKey = std::tuple<uid_t, pid_t, CacheKey>;
  AuditLog(Options options, Logger log);
  Result<void> begin();
  Result<void> open_file();
  void run() CUKILN_EXCLUDES(mutex_);
  std::vector<Queued> take(std::uint64_t& lost) CUKILN_REQUIRES(mutex_);
  static std::vector<Queued> merged(std::vector<Queued> events);
  bool write(const Queued& queued);
  bool write_line(const std::string& line);
  bool send_to_journal(const Queued& queued, const std::string& line);
  void rotate();

  const Options options_;
  const Logger log_;
  std::string journal_;  // the path of journald's socket; empty: a file
  UniqueFd out_;         // the file, or a socket; like the members below, of the thread only
  std::uint64_t size_ = 0;
  std::uint64_t last_number_ = 0;
  bool warned_ = false;

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Queued> queue_ CUKILN_GUARDED_BY(mutex_);
  std::map<EntryKey, std::uint64_t> entries_ CUKILN_GUARDED_BY(mutex_);
  std::uint64_t lost_ CUKILN_GUARDED_BY(mutex_) = 0;
  bool ending_ CUKILN_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cukiln::daemon
