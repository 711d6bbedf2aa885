// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "addons/daemon/protocol/daemon_frame.hpp"
#include "addons/daemon/protocol/daemon_messages.hpp"
#include "core/base/cancel_flags.hpp"
#include "core/base/file.hpp"
#include "core/base/logger.hpp"
#include "core/base/telemetry.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/daemon_tier.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

struct DaemonConnection;
template <class T>
class ProcessLocal;

/// Why a client fell back to a compile in its own process. The names are the label of a metric.
enum class Fallback { absent, timeout, version, io, protocol, declined };
inline constexpr const char* kFallbacks[] = {"absent", "timeout",  "version",
                                             "io",     "protocol", "declined"};

/// A client of cukilnd: a tier that is looked up last, and a compiler. Idle connections are kept
/// for the next conversation. A circuit breaker skips a daemon that is missing or hung, so that the
/// timeout is paid once in a while and not for every kernel. Starts no thread and raises no signal;
/// a forked child makes connections of its own. Threads: safe; a conversation belongs to one
/// thread.
class DaemonClient final : public DaemonTier {
 public:
  struct Options : DaemonTier::Options {
    std::chrono::milliseconds connect_timeout{
        50};                                    ///< `heartbeat` if that is longer and `required`
    std::chrono::milliseconds heartbeat{2000};  ///< a daemon silent for longer counts as hung
    std::chrono::milliseconds breaker_pause{30'000};
    uid_t (*own_user)() = nullptr;  ///< for tests that act as another user; null: geteuid
  };

  explicit DaemonClient(Options options);
  ~DaemonClient() override;
  DaemonClient(const DaemonClient&) = delete;
  DaemonClient& operator=(const DaemonClient&) = delete;

  /// False while the circuit breaker is open.
  bool available() const noexcept;
  /// True while the circuit breaker is open because the daemon stopped responding in the middle of
  /// a conversation: it may hold locks that it will not release. (A late greeting does not count,
  /// because the machine may just be busy.)
  bool hung() const noexcept;
  bool required() const noexcept { return options_.required; }
  Counts counts() const noexcept override;

  /// A request and its replies. Closes its connection unless it ends with `finish` or `declined`.
  class Conversation {
   public:
    Conversation(Conversation&&) noexcept;
    Conversation& operator=(Conversation&&) noexcept;
    ~Conversation();

    const wire::Greeting& greeting() const noexcept;
    /// Errors: io, timeout; they open the circuit breaker.
    Result<void> send(wire::DaemonOp op, ByteView body, UniqueFd attachment = {});
    /// Sends large content as an attachment. Errors: as send.
    Result<void> send_content(wire::DaemonOp op, const std::string& content);
    /// Receives the next frame of this conversation. Errors: as send; also timeout if `deadline`
    /// passed or `cancelled` was set, which do not open the circuit breaker.
    Result<wire::DaemonFrame> receive(std::chrono::steady_clock::time_point deadline =
                                          std::chrono::steady_clock::time_point::max(),
                                      CancelFlags cancelled = {});
    /// The daemon violated the protocol in `what`: closes the connection, opens the circuit breaker
    /// and returns the error.
    Error protocol_error(const char* what);
    /// Converts a reply that is not the expected one to an error: the daemon's, or else a protocol
    /// error.
    Error unexpected(wire::DaemonFrame& reply, const char* what);
    /// Ends the conversation; the connection is kept for the next one.
    void finish();
    /// As `finish`, but counts that the daemon declined the request.
    void declined();

   private:
    friend class DaemonClient;
    Conversation(DaemonClient& client, std::unique_ptr<DaemonConnection> connection);
    Error lost(ErrorCode code, std::string why);

    DaemonClient* client_;
    std::unique_ptr<DaemonConnection> connection_;
    std::uint64_t id_ = 0;
  };

  /// Errors: not_found (no daemon is running, or the circuit breaker is open), incompatible
  /// (another version), io (another user's daemon), timeout (no greeting).
  Result<Conversation> begin();

  /// Sends one request and receives its only reply. Errors: as begin and receive.
  Result<wire::DaemonFrame> ask(wire::DaemonOp op, const std::string& content);

  void take_fallbacks(Report& report) override;
  bool report(const Report& report) override;
  bool report_totals(const Report& report) override;

  bool is_own_store(const wire::Greeting& greeting) const {
    return greeting.store_inode != 0 && options_.is_own_store &&
           options_.is_own_store(greeting.store_device, greeting.store_inode);
  }

  // The tier. Cubins arrive as sealed files in memory, which are mapped and never copied.

  /// Asks nothing if the daemon's store is the process's own, which was looked up before.
  Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check) override;
  /// Absent if the daemon keeps no blobs, or has the process's own store and no remote one.
  BlobLookup get(const BlobName& name) override;
  Result<PutOutcome> put(const StoreBlob& blob) override;

 private:
  struct State;  // one for each process
  Result<std::unique_ptr<DaemonConnection>> connect_any();
  std::unique_ptr<DaemonConnection> take_idle();
  void keep_idle(std::unique_ptr<DaemonConnection> connection);
  bool send_report(std::unique_ptr<DaemonConnection> connection, const Report& report);
  void open_breaker(const Error& error);
  void count(Fallback reason) noexcept { fallbacks_.add(reason); }
  /// True if the daemon keeps blobs, and has others than the process's own store.
  bool may_ask_for_blobs(const wire::Greeting& greeting) const;

  const Options options_;
  const std::unique_ptr<ProcessLocal<State>> state_;
  std::atomic<std::int64_t> open_until_ns_{0}, hung_until_ns_{0};  // of the circuit breaker
  std::atomic<std::uint64_t> asked_{0}, absent_{0}, failed_{0}, declined_{0};
  Counters<Fallback, std::size(kFallbacks)> fallbacks_;
};

/// The content of a message: its body, or its attachment. Errors: as map_sealed_file.
Result<SharedBytes> content_of(wire::DaemonFrame& frame,
                               std::uint64_t max_bytes = wire::kMaxAttachmentBytes);

}  // namespace cukiln
