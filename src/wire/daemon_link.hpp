// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/logger.hpp"
#include "wire/daemon_frame.hpp"
#include "wire/daemon_messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln {
template <class T>
class ProcessLocal;
}

namespace cukiln::wire {

/// How long a side that has just spoken waits awake for the other: an answer comes, and who has
/// asked asks again, sooner than a virtual machine wakes a processor that sleeps.
inline constexpr std::chrono::microseconds kSpinTime{60};

/// Why a client did without its daemon.
enum class Fallback { absent, timeout, version, io, protocol, declined };
inline constexpr const char* kFallbacks[] = {"absent", "timeout",  "version",
                                             "io",     "protocol", "declined"};

/// Counters of a link, since it was made.
struct DaemonLinkStats {
  std::uint64_t asked = 0;     ///< conversations that began
  std::uint64_t absent = 0;    ///< nobody was there
  std::uint64_t failed = 0;    ///< it hung, died, was another version's or another user's
  std::uint64_t declined = 0;  ///< it was busy, or about to end
};

/// The way to cukilnd from a process that may do without: connections kept for the next question,
/// and a breaker, so that a daemon that is missing or hung costs its budget once in a while and not
/// at every kernel. No thread, no signal; a forked child makes connections of its own.
/// Threads: safe; a conversation belongs to one thread.
class DaemonLink {
 public:
  struct Options {
    std::vector<std::string> sockets;  ///< tried in order
    bool required = false;             ///< who asks cannot do without: no breaker
    std::chrono::milliseconds connect_timeout{50};
    std::chrono::milliseconds heartbeat{2000};  ///< without a word from it, it is taken for hung
    std::chrono::milliseconds leave_alone{30'000};
    uid_t (*own_user)() = nullptr;  ///< tests are somebody else; null: geteuid
    Logger log;
  };

  explicit DaemonLink(Options options);
  ~DaemonLink();
  DaemonLink(const DaemonLink&) = delete;
  DaemonLink& operator=(const DaemonLink&) = delete;

  /// Whether it is worth asking: false while it is left alone.
  bool available() const noexcept;
  /// It is left alone because it hung while it worked for this process: it may hold locks that it
  /// will not give up. (Who is not greeted in time may just have to do with a busy machine.)
  bool hung() const noexcept;
  bool required() const noexcept { return options_.required; }
  DaemonLinkStats stats() const noexcept;

  /// One question and its answers. A conversation that does not end with `finish` gives its
  /// connection up.
  class Conversation {
   public:
    Conversation(Conversation&&) noexcept;
    Conversation& operator=(Conversation&&) noexcept;
    ~Conversation();

    const Greeting& greeting() const noexcept;
    /// Large content goes into a descriptor. Errors: io, timeout; the link has taken note of them.
    Result<void> send(DaemonOp op, ByteView body, UniqueFd attachment = {});
    Result<void> send_content(DaemonOp op, const std::string& content);
    /// The next frame of this conversation. Errors: as send; timeout also when `deadline` passed
    /// (the link takes no note of that) or `cancelled` was set.
    Result<DaemonFrame> receive(std::chrono::steady_clock::time_point deadline =
                                    std::chrono::steady_clock::time_point::max(),
                                const std::atomic<bool>* cancelled = nullptr);
    /// What the daemon said cannot be: the connection is given up and the daemon left alone.
    Error protocol_error(const char* about);
    /// The question is answered: the connection may serve the next one.
    void finish();
    /// The daemon is there and does not want: another time.
    void declined();

   private:
    friend class DaemonLink;
    struct Connection;
    Conversation(DaemonLink& link, std::unique_ptr<Connection> connection);
    Error lost(ErrorCode code, std::string why);

    DaemonLink* link_;
    std::unique_ptr<Connection> connection_;
    std::uint64_t id_ = 0;
  };

  /// Errors: not_found (nobody is there, or it is left alone), incompatible (another version), io
  /// (another user's), timeout (it does not answer).
  Result<Conversation> begin();

  /// One request with one answer. Errors: as begin and receive.
  Result<DaemonFrame> ask(DaemonOp op, const std::string& content);

  /// Tells what needs no answer, if a connection is open and takes it at once. False: it was not
  /// told; nobody is waited for.
  bool report(const ClientReport& report);

  /// `take(reason, times)`, one of kFallbacks, for each that is not zero, and makes it zero.
  template <class Take>
  void drain_fallbacks(const Take& take) {
    for (std::size_t i = 0; i < fallbacks_.size(); ++i) {
      if (const auto times = fallbacks_[i].exchange(0, std::memory_order_relaxed); times != 0) {
        take(kFallbacks[i], times);
      }
    }
  }

  /// The greeting of whoever answers. Errors: as begin.
  Result<Greeting> greet();

 private:
  struct State;  // of one process
  Result<std::unique_ptr<Conversation::Connection>> connect(const std::string& path);
  Result<std::unique_ptr<Conversation::Connection>> connect_any();
  std::unique_ptr<Conversation::Connection> take_idle();
  void keep_idle(std::unique_ptr<Conversation::Connection> connection);
  void note(const Error& error);
  void count(Fallback reason) noexcept {
    fallbacks_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }

  const Options options_;
  const std::unique_ptr<ProcessLocal<State>> state_;
  std::atomic<std::int64_t> leave_until_ns_{0}, hung_until_ns_{0};
  std::atomic<std::uint64_t> asked_{0}, absent_{0}, failed_{0}, declined_{0};
  std::array<std::atomic<std::uint64_t>, std::size(kFallbacks)> fallbacks_{};
};

/// The content of a message: its body, or what came along instead. Errors: as map_sealed_file.
Result<SharedBytes> content_of(DaemonFrame& frame, std::uint64_t max_bytes = kMaxAttachmentBytes);

/// What an `error` says. Of another frame, or one that cannot be read: internal.
Refusal refusal_of(DaemonFrame& frame);
Error error_of(DaemonFrame& frame);

}  // namespace cukiln::wire
