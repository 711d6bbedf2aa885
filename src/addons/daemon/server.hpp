// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "addons/daemon/acceptor.hpp"
#include "addons/daemon/blocking_pool.hpp"
#include "addons/daemon/compile_scheduler.hpp"
#include "addons/daemon/compilers.hpp"
#include "addons/daemon/counters.hpp"
#include "addons/daemon/event_loop.hpp"
#include "addons/daemon/housekeeping.hpp"
#include "addons/daemon/lookup_service.hpp"
#include "addons/daemon/protocol/daemon_frame.hpp"
#include "addons/daemon/request_dispatcher.hpp"
#include "addons/daemon/service_manager.hpp"
#include "addons/daemon/session.hpp"
#include "core/base/file.hpp"
#include "core/base/logger.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln::daemon {

struct ServerOptions {
  LoaderOptions loader;  ///< where NVRTC is, and the limits of a compile
  CompileScheduler::Options compiles;
  std::size_t max_sessions = 1024;
  Session::Limits session;
  std::uint64_t cached_entry_bytes = 256ull << 20;  ///< capacity of the SealedEntryCache
  unsigned store_threads = 4;                       ///< of the BlockingPool
  std::chrono::milliseconds drain_timeout{10'000};
  RemoteTier* remote = nullptr;  ///< may be null; outlives the server
  Logger log;
};

/// Serves the IPC socket of cukilnd (cache/WIRE.md): connects loop, sessions and scheduler,
/// handles signals and shuts down. Serves the user of this process and no other. Looks
/// up in the store, and compiles misses once. Threads: `snapshot` and `compiler` are safe, the rest
/// is for one thread.
class Server {
 public:
  /// `store` outlives the server. Errors: io.
  static Result<std::unique_ptr<Server>> create(ServerOptions options, TieredStore& store,
                                                IpcListener listener, ServiceManager manager);
  ~Server();

  /// Serves until SIGTERM or SIGINT, and until the compiles that run then have ended. The caller
  /// has blocked both signals and SIGHUP in all threads. Errors: io.
  Result<void> run();

  /// Returns the state that the loop reports. Nothing if the loop does not respond within
  /// `timeout`: it hangs or has ended. Threads: any.
  std::optional<wire::DaemonSnapshot> snapshot(std::chrono::milliseconds timeout);

  /// Describes the compiler: `nvrtc 13.0.88`. Threads: any. Errors: why nothing can be compiled.
  Result<std::string> compiler() { return compilers_.describe(); }

  /// Sets what to call on SIGHUP, in a thread of its own and one call at a time. SIGHUPs during a
  /// call cause one more.
  /// After each, the loop forgets the entries in memory: a key may have been revoked.
  void on_reload(std::function<void()> reload);
  /// Sets the maintenance of the stores, which is called about once a minute in a thread of its
  /// own, and once at the end of `run`.
  void on_idle_minute(std::function<void()> maintain) {
    housekeeping_.set_maintenance(std::move(maintain));
  }
  /// Sets the address of the status page that snapshots report. Call it before `run`.
  void set_page(std::string address) { page_ = std::move(address); }

 private:
  Server(ServerOptions options, TieredStore& store, IpcListener listener, ServiceManager manager,
         std::unique_ptr<EventLoop> loop, std::unique_ptr<BlockingPool> pool,
         std::unique_ptr<ClosingThread> closing);

  Result<void> begin();
  wire::Greeting greeting() const;
  void accept(UniqueFd socket);
  void reject(UniqueFd socket, std::uint64_t& counter);
  void end_round();
  void handle_signals();
  void drain();
  void notify_watchdog();
  wire::DaemonSnapshot describe();

  // Each uses those above it.
  const ServerOptions options_;
  TieredStore& store_;
  const ServiceManager manager_;
  const Logger log_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  DaemonCounters counters_;
  const std::unique_ptr<EventLoop> loop_;
  const std::unique_ptr<ClosingThread> closing_;
  Compilers compilers_;
  Session::Shared shared_;
  SessionTable sessions_;
  Housekeeping housekeeping_;
  const std::unique_ptr<BlockingPool> pool_;
  LookupService lookups_;
  RequestDispatcher dispatcher_;  // it and scheduler_ call each other, on the loop's thread only
  CompileScheduler scheduler_;
  Acceptor acceptor_;
  std::uint64_t last_connection_ = 0;
  wire::Greeting greeting_;
  std::string page_;
  UniqueFd signals_;
  EventLoop::Watch signals_watch_;
  EventLoop::Timer watchdog_, drain_deadline_;
  bool draining_ = false;
  bool is_drain_over_ = false;
};

}  // namespace cukiln::daemon
