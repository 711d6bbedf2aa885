// SPDX-License-Identifier: Apache-2.0
#include "daemon/audit_log.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include <nlohmann/json.hpp>

#include "base/result.hpp"
#include "wire/unix_socket.hpp"

namespace cukiln::daemon {

namespace {

using Json = nlohmann::ordered_json;
using std::chrono::system_clock;

constexpr std::string_view kJournal = "journal";
constexpr const char* kJournalSocket = "/run/systemd/journal/socket";
constexpr std::size_t kMaxTextBytes = 1 << 10;

/// `2026-11-24T10:40:01.123Z`.
std::string utc(system_clock::time_point at) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch());
  const std::time_t seconds = ms.count() / 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     ms.count() % 1000);
}

/// A line in ASCII: bytes that are not UTF-8 are replaced, and all else is escaped.
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

AuditLog::AuditLog(Options options, Logger log)
    : options_(std::move(options)), log_(std::move(log)) {
  const std::string_view where = options_.where;
  if (where == kJournal) {
    journal_ = kJournalSocket;
  } else if (where.substr(0, kJournal.size() + 1) == "journal:") {
    journal_ = where.substr(kJournal.size() + 1);
  }
}

Result<std::unique_ptr<AuditLog>> AuditLog::open(Options options, Logger log) {
  std::unique_ptr<AuditLog> self(new AuditLog(std::move(options), std::move(log)));
  CUKILN_CHECK(self->begin());
  return self;
}

AuditLog::~AuditLog() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

Result<void> AuditLog::begin() {
  if (journal_.empty()) {
    CUKILN_CHECK(open_file());
  } else {
    out_ = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    CUKILN_TRY(const wire::UnixAddress to, wire::unix_address(journal_));
    if (!out_ ||
        ::connect(out_.get(), reinterpret_cast<const sockaddr*>(&to.address), to.size) != 0) {
      return make_error(ErrorCode::io, "cannot reach journald at {} for the audit log: {}",
                        journal_, errno_text(errno));
    }
  }
  return guarded([&]() -> Result<void> {
    thread_ = std::thread([this] { run(); });
    return {};
  });
}

Result<void> AuditLog::open_file() {
  constexpr mode_t kOwnerOnly = 0600;
  UniqueFd opened(::open(options_.where.c_str(),
                         O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                         kOwnerOnly));
  struct stat status {};
  if (!opened || ::fstat(opened.get(), &status) != 0) {
    return make_error(errno == ELOOP ? ErrorCode::invalid_argument : ErrorCode::io,
                      "cannot open the audit log {}: {}", options_.where, errno_text(errno));
  }
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() ||
      (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return make_error(ErrorCode::invalid_argument,
                      "the audit log {} must be a file of user {} that no other user can write",
                      options_.where, ::geteuid());
  }
  out_ = std::move(opened);
  size_ = static_cast<std::uint64_t>(status.st_size);
  return {};
}

void AuditLog::record(AuditEvent event) noexcept {
  static_cast<void>(guarded([&]() -> Result<void> {
    const MutexLock lock(mutex_);
    if (queue_.size() >= options_.max_queued) {
      ++lost_;
      return {};
    }
    queue_.push_back({system_clock::now(), std::move(event)});
    if (queue_.size() == 1) {
      changed_.notify_one();
    }
    return {};
  }));
}

void AuditLog::record_entry(uid_t user, pid_t process, const CacheKey& key) noexcept {
  static_cast<void>(guarded([&]() -> Result<void> {
    const MutexLock lock(mutex_);
    const bool is_first = entries_.empty();
    const EntryKey wanted{user, process, key};
    if (entries_.size() >= options_.max_queued && !entries_.contains(wanted)) {
      ++lost_;
      return {};
    }
    ++entries_[wanted];
    if (is_first) {
      changed_.notify_one();
    }
    return {};
  }));
}

std::vector<AuditLog::Queued> AuditLog::take(std::uint64_t& lost) {
  std::vector<Queued> events(std::make_move_iterator(queue_.begin()),
                             std::make_move_iterator(queue_.end()));
  queue_.clear();
  const auto now = system_clock::now();
  for (const auto& [entry, count] : entries_) {
    const auto& [user, process, key] = entry;
    events.push_back({now, {"entry", user, process, {{"key", key.hex()}}, {}}, count});
  }
  entries_.clear();
  lost = std::exchange(lost_, 0);
  return events;
}

/// Counts equal events as one, at the time of the first.
std::vector<AuditLog::Queued> AuditLog::merged(std::vector<Queued> events) {
  std::vector<Queued> out;
  for (Queued& one : events) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const Queued& other) {
      return std::string_view(other.event.event) == one.event.event &&
             other.event.user == one.event.user && other.event.process == one.event.process &&
             other.event.texts == one.event.texts && other.event.numbers == one.event.numbers;
    });
    if (same != out.end()) {
      same->count += one.count;
    } else {
      out.push_back(std::move(one));
    }
  }
  return out;
}

void AuditLog::run() {
  std::uint64_t lost = 0;
  for (bool ends = false; !ends;) {
    std::vector<Queued> events;
    std::uint64_t lost_now = 0;
    {
      MutexLock lock(mutex_);
      changed_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) {
        return ending_ || !queue_.empty() || !entries_.empty() || lost_ != 0;
      });
      changed_.wait_for(lock, options_.interval,  // more events, to merge
                        [&]() CUKILN_REQUIRES(mutex_) { return ending_; });
      ends = ending_;
      events = take(lost_now);
    }
    lost += lost_now;
    for (const Queued& queued : merged(std::move(events))) {
      if (lost != 0 && write({system_clock::now(), {"lost", ::geteuid(), ::getpid()}, lost})) {
        lost = 0;
      }
      lost += write(queued) ? 0 : queued.count;
    }
  }
}

bool AuditLog::write(const Queued& queued) {
  Json json{{"time", utc(queued.at)},
            {"seq", last_number_ + 1},
            {"event", queued.event.event},
            {"uid", queued.event.user}};
  if (queued.event.process != 0) {
    json["pid"] = queued.event.process;
  }
  for (const auto& [name, text] : queued.event.texts) {
    json[name] = text.substr(0, kMaxTextBytes);
  }
  for (const auto& [name, number] : queued.event.numbers) {
    json[name] = number;
  }
  if (queued.count != 1) {
    json["count"] = queued.count;
  }
  const std::string line = line_of(json);
  const bool written = journal_.empty() ? write_line(line) : send_to_journal(queued, line);
  last_number_ += written ? 1 : 0;
  if (!written && !std::exchange(warned_, true)) {
    log_.warn("cannot write the audit log {}: {}; events are lost until it can be written",
              options_.where, errno_text(errno));
  }
  warned_ = warned_ && !written;
  return written;
}

bool AuditLog::write_line(const std::string& line) {
  if (size_ != 0 && size_ + line.size() + 1 > options_.max_bytes) {
    rotate();
  }
  const std::string bytes = line + "\n";
  const ssize_t written = ::write(out_.get(), bytes.data(), bytes.size());
  if (written < 0) {
    return false;
  }
  if (static_cast<std::size_t>(written) != bytes.size()) {  // a full disk: leave no half a line
    static_cast<void>(!::ftruncate(out_.get(), static_cast<off_t>(size_)));
    errno = ENOSPC;
    return false;
  }
  size_ += bytes.size();
  return true;
}

void AuditLog::rotate() {
  const auto numbered = [&](unsigned number) {
    return number == 0 ? options_.where : fmt::format("{}.{}", options_.where, number);
  };
  for (unsigned number = options_.kept_files; number > 0; --number) {
    static_cast<void>(
        std::rename(numbered(number - 1).c_str(), numbered(number).c_str()));  // if it exists
  }
  if (auto opened = open_file(); !opened) {  // goes on in the file that is open
    log_.warn("{}", opened.error().message());
  }
}

/// Sends the line with fields that `journalctl CUKILND_EVENT=compiled` can select.
bool AuditLog::send_to_journal(const Queued& queued, const std::string& line) {
  std::string message = fmt::format(
      "MESSAGE={}\nPRIORITY=6\nSYSLOG_IDENTIFIER=cukilnd\nCUKILND_EVENT={}\nCUKILND_UID={}\n", line,
      queued.event.event, queued.event.user);
  for (const auto& [name, text] : queued.event.texts) {
    std::string field = name;
    std::transform(field.begin(), field.end(), field.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    // A JSON string has no line end, so a text cannot begin another field.
    message += fmt::format("CUKILND_{}={}\n", field, line_of(text.substr(0, kMaxTextBytes)));
  }
  return ::send(out_.get(), message.data(), message.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(message.size());
}

}  // namespace cukiln::daemon
