// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/file.hpp"
#include "base/logger.hpp"
#include "daemon/acceptor.hpp"
#include "daemon/blocking_pool.hpp"
#include "daemon/compile_scheduler.hpp"
#include "daemon/compile_supervisor.hpp"
#include "daemon/compilers.hpp"
#include "daemon/counters.hpp"
#include "daemon/event_loop.hpp"
#include "daemon/housekeeping.hpp"
#include "daemon/lookup_service.hpp"
#include "daemon/request_dispatcher.hpp"
#include "daemon/service_manager.hpp"
#include "daemon/session_table.hpp"
#include "daemon/source_watch.hpp"
#include "daemon/user_stores.hpp"
#include "store/tiered_store.hpp"

namespace cukiln::daemon {

struct ServerOptions {
  bool system = false;
  bool watch_sources = false;  ///< compile ahead what was edited; never for a system's
  LoaderOptions loader;        ///< where NVRTC is, and the limits of a compile
  CompileScheduler::Options compiles;
  SessionTable::Limits sessions;
  Session::Limits session;
  std::uint64_t cached_entry_bytes = 256ull << 20;  ///< of cubins kept ready for the next client
  unsigned store_threads = 4;                       ///< that wait for disks instead of the loop
  std::chrono::milliseconds drain_within{10'000};
  RemoteTier* remote = nullptr;  ///< may be null; outlives the server
  Logger log;
};

/// The IPC socket of cukilnd (cache/WIRE.md): puts loop, sessions, scheduler and supervisor
/// together, takes signals, and ends them all. Looks up in the client's user's store, and has what
/// is not there compiled, once. Threads: `snapshot` and `compiler` are safe.
class Server {
 public:
  /// `store` is the daemon's own; `stores` have the entries. Errors: io.
  static Result<std::unique_ptr<Server>> create(ServerOptions options, TieredStore& store,
                                                UserStores& stores, Listener listener,
                                                ServiceManager manager);
  ~Server();

  /// Until SIGTERM or SIGINT (which the caller has blocked, with SIGHUP, in all threads), and until
  /// what was running then has ended.
  Result<void> run();

  /// How things are. Any thread; it waits for the loop's next round. Nothing: the loop did not come
  /// round within `timeout`, so it hangs or has ended.
  std::optional<wire::DaemonSnapshot> snapshot(std::chrono::milliseconds timeout);

  /// Who compiles here: `nvrtc 13.0.88`. Any thread. Errors: why nobody can.
  Result<std::string> compiler() { return compilers_.describe(); }

  /// Called on SIGHUP, in a thread of its own: once at a time, and once more for what came
  /// meanwhile.
  void on_reload(std::function<void()> reload) { housekeeping_.set_reload(std::move(reload)); }
  /// Called about every minute while it serves, in a thread of its own, and once when it ends: what
  /// the stores need without a request.
  void on_idle_minute(std::function<void()> maintain) {
    housekeeping_.set_maintenance(std::move(maintain));
  }
  /// Sets the address of the status page that snapshots report. Call it before `run`.
  void set_page(std::string address) { page_ = std::move(address); }

 private:
  Server(ServerOptions options, TieredStore& store, UserStores& stores, Listener listener,
         ServiceManager manager, std::unique_ptr<EventLoop> loop,
         std::unique_ptr<BlockingPool> pool);

  Result<void> begin();
  std::string greeting() const;
  void watch_sources();
  void welcome(UniqueFd socket);
  void end_round();
  void take_signals();
  void drain();
  void notify_watchdog();
  wire::DaemonSnapshot describe();

  // In the order in which each needs those above it.
  const ServerOptions options_;
  TieredStore& store_;  ///< what is of no user: counters, digests of libraries
  UserStores& stores_;
  const ServiceManager manager_;
  const Logger log_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  DaemonCounters counters_;
  const std::unique_ptr<EventLoop> loop_;
  Compilers compilers_;
  Session::Shared shared_;
  SessionTable sessions_;
  Housekeeping housekeeping_;
  const std::unique_ptr<BlockingPool> pool_;
  LookupService lookups_;
  RequestDispatcher dispatcher_;  // and the scheduler: each calls the other, on the loop only
  CompileSupervisor supervisor_;
  CompileScheduler scheduler_;
  std::unique_ptr<SourceWatch> watch_;  ///< null: files are not watched. It posts to the loop
  Acceptor acceptor_;
  std::string greeting_;
  std::string page_;
  UniqueFd signals_;
  EventLoop::Watch signals_watch_;
  EventLoop::Timer watchdog_, drain_deadline_;
  bool draining_ = false;
  bool is_drain_over_ = false;
};

}  // namespace cukiln::daemon
