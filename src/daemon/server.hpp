// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/file.hpp"
#include "base/logger.hpp"
#include "daemon/sealed_entry_cache.hpp"
#include "daemon/compilers.hpp"
#include "daemon/counters.hpp"
#include "daemon/flights.hpp"
#include "daemon/listener.hpp"
#include "daemon/task_queue.hpp"
#include "daemon/service_manager.hpp"
#include "daemon/source_watch.hpp"
#include "daemon/user_stores.hpp"
#include "store/tiered_store.hpp"
#include "wire/daemon_frame.hpp"

namespace cukiln::daemon {

struct ServerOptions {
  bool system = false;
  bool watch_sources = false;  ///< compile ahead what was edited; never for a system's
  LoaderOptions loader;        ///< where NVRTC is, and the limits of a compile
  Flights::Options flights;
  std::size_t max_connections = 4096;
  std::size_t max_connections_of_user = 1024;
  std::size_t max_unsent_bytes = 16 << 20;       ///< of one client that does not read
  std::uint64_t cached_entry_bytes = 256ull << 20;       ///< of cubins kept in memory for the next client
  std::chrono::milliseconds frame_within{2000};  ///< a frame that began, or a greeting's answer
  std::chrono::milliseconds drain_within{10'000};
  RemoteTier* remote = nullptr;  ///< may be null; outlives the server
  Logger log;
};

/// The data door of cukilnd (cache/WIRE.md): one thread, one epoll, any number of clients. Looks up
/// in the client's user's store, and has what is not there compiled, once.
class Server final : private Replies {
 public:
  /// `store` is the daemon's own; `stores` have the entries. Errors: io.
  static Result<std::unique_ptr<Server>> create(ServerOptions options, TieredStore& store,
                                                UserStores& stores, Listener listener,
                                                ServiceManager manager);
  ~Server() override;

  /// Until SIGTERM or SIGINT (which the caller has blocked, with SIGHUP, in all threads), and until
  /// what was running then has ended.
  Result<void> run();

  /// How things are. Any thread; it waits for the loop's next turn. Nothing: the loop did not come
  /// round within `patience`, so it hangs or has ended.
  std::optional<wire::DaemonSnapshot> snapshot(std::chrono::milliseconds patience);

  /// Who compiles here: `nvrtc 13.0.88`. Any thread. Errors: why nobody can.
  Result<std::string> compiler() { return compilers_.describe(); }

  /// Called on SIGHUP, in a thread of its own: once at a time, and once more for what came
  /// meanwhile.
  void on_reload(std::function<void()> reload) { reload_ = std::move(reload); }
  /// Called about every minute while it serves, in a thread of its own, and once when it ends: what
  /// the store needs, without anybody asking.
  void on_idle_minute(std::function<void()> chore) { chore_ = std::move(chore); }

 private:
  struct Client;
  Server(ServerOptions options, TieredStore& store, UserStores& stores, Listener listener,
         ServiceManager manager);

  void watch_sources();
  void accept_clients();
  void refuse_while_out_of_descriptors();
  void serve(Client& client, std::uint32_t events);
  void read_from(Client& client);
  void take_frames(Client& client);
  /// False: the client has been closed.
  bool handle(Client& client, wire::DaemonFrame& frame);
  void hello(Client& client, const wire::DaemonFrame& frame);
  void find_sets(Client& client, wire::DaemonFrame& frame);
  void give_entry(Client& client, const wire::DaemonFrame& frame);
  void compile(Client& client, wire::DaemonFrame& frame);
  void answer(Client& client, wire::DaemonFrame& frame);
  void places(Client& client, wire::DaemonFrame& frame);
  void take_report(Client& client, const wire::DaemonFrame& frame);
  /// `what`: one of kMisuses.
  void misuse(Client& client, std::string_view what);
  void close(Client& client);
  void remove_closed();

  /// Sends what one of `requests` came to that was asked at `since`.
  void answer_to(RequestCounters& requests, std::chrono::steady_clock::time_point since,
                 Client& client, wire::DaemonOp op, std::uint64_t id, std::string body,
                 std::shared_ptr<UniqueFd> attachment = nullptr);
  void send(Client& client, wire::DaemonOp op, std::uint64_t id, std::string body,
            std::shared_ptr<UniqueFd> attachment);
  void write_to(Client& client);
  void watch(Client& client, bool writable);
  void reply(const Asker& to, wire::DaemonOp op, std::string body,
             std::shared_ptr<UniqueFd> attachment) override;
  void give_up(const Asker& client) override;

  void take_signal();
  void reload();
  std::chrono::steady_clock::time_point do_what_is_due();
  wire::DaemonSnapshot describe();
  Asker asker(const Client& client, std::uint64_t id) const noexcept;

  const ServerOptions options_;
  TieredStore& store_;  ///< what is nobody's: counters, digests of libraries
  UserStores& stores_;
  Listener listener_;
  const ServiceManager manager_;
  const Logger log_;
  std::string greeting_;
  TaskQueue tasks_;
  DaemonCounters counters_;
  std::set<std::string, std::less<>> reportable_;  // what clients may tell
  SealedEntryCache entries_;
  Compilers compilers_;
  Flights flights_;
  std::unique_ptr<SourceWatch> watch_;  ///< null: files are not watched. It posts to the tasks
  UniqueFd epoll_, signals_, spare_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Client>> clients_;
  std::unordered_map<uid_t, std::size_t> clients_of_user_;
  std::unordered_set<std::uint64_t> hurried_;  ///< clients with a deadline for their next bytes
  std::vector<std::uint64_t> closed_;
  std::uint64_t last_connection_ = 0;
  std::string read_buffer_;
  std::function<void()> reload_, chore_;
  std::future<void> chore_running_, reload_running_;
  std::atomic<unsigned> reloads_asked_{0};
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_chore_, next_watchdog_, drain_until_, accept_again_;
  bool accepting_ = true;
  bool draining_ = false;
};

}  // namespace cukiln::daemon
