// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/server.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <utility>

#include "addons/daemon/protocol/unix_socket.hpp"
#include "core/base/result.hpp"

#include <cukiln/version.hpp>

namespace cukiln::daemon {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

}  // namespace

Server::Server(ServerOptions options, TieredStore& store, IpcListener listener,
               ServiceManager manager, std::unique_ptr<EventLoop> loop,
               std::unique_ptr<BlockingPool> pool, std::unique_ptr<ClosingThread> closing)
    : options_(std::move(options)),
      store_(store),
      manager_(std::move(manager)),
      log_(options_.log),
      loop_(std::move(loop)),
      closing_(std::move(closing)),
      compilers_(options_.loader, store),
      shared_{*loop_, counters_, *closing_, log_, options_.session},
      sessions_(options_.max_sessions, shared_),
      housekeeping_(*loop_, manager_),
      pool_(std::move(pool)),
      lookups_(store, *pool_, *loop_, options_.cached_entry_bytes),
      dispatcher_({*loop_, sessions_, *pool_, lookups_, scheduler_, store, counters_,
                   [this] { return describe(); }, options_.remote}),
      scheduler_(options_.compiles,
                 {options_.compiles.runs, *loop_, compilers_, store, options_.remote, log_},
                 dispatcher_, counters_),
      acceptor_(*loop_, std::move(listener)),
      watchdog_(*loop_, [this] { notify_watchdog(); }),
      drain_deadline_(*loop_, [this] {
        if (!is_drain_over_) {
          log_.warn("compiles were not done {} ms after the signal and are cancelled",
                    options_.drain_timeout.count());
        }
        is_drain_over_ = true;
        scheduler_.cancel_all();
        drain_deadline_.set_after(std::chrono::seconds(1));
      }) {
  shared_.handler = &dispatcher_;
}

Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(ServerOptions options, TieredStore& store,
                                               IpcListener listener, ServiceManager manager) {
  CUKILN_TRY(auto loop, EventLoop::create(options.log));
  CUKILN_TRY(auto pool, BlockingPool::create(options.store_threads, loop->tasks()));
  CUKILN_TRY(auto closing, ClosingThread::create());
  std::unique_ptr<Server> self(new Server(std::move(options), store, std::move(listener),
                                          std::move(manager), std::move(loop), std::move(pool),
                                          std::move(closing)));
  CUKILN_CHECK(self->begin());
  return self;
}

Result<void> Server::begin() {
  greeting_ = greeting();
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    ::sigaddset(&signals, signal);
  }
  signals_ = UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  CUKILN_TRY(signals_watch_,
             loop_->watch(signals_.get(), EPOLLIN, [this](std::uint32_t) { handle_signals(); }));
  loop_->at_end_of_round([this] { end_round(); });
  return acceptor_.begin(
      [this](UniqueFd socket) { accept(std::move(socket)); },
      [this](UniqueFd socket) { reject(std::move(socket), counters_.rejected_limit); });
}

wire::Greeting Server::greeting() const {
  wire::Greeting greeting;
  greeting.oldest_version = wire::kDaemonProtocol;
  greeting.newest_version = wire::kDaemonProtocol;
  greeting.takes_reports = true;
  greeting.takes_totals = true;
  greeting.keeps_blobs = true;
  greeting.process = static_cast<std::uint32_t>(::getpid());
  greeting.build = version();
  struct stat status {};
  if (store_.disk() != nullptr && ::stat(store_.disk()->directory().root().c_str(), &status) == 0) {
    greeting.store_device = status.st_dev;
    greeting.store_inode = status.st_ino;
  }
  return greeting;
}

Result<void> Server::run() {
  housekeeping_.begin();
  if (manager_.watchdog.count() > 0) {
    notify_watchdog();
  }
  manager_.notify(fmt::format("READY=1\nSTATUS=Serving at {}", acceptor_.path()));
  CUKILN_CHECK(loop_->run());
  sessions_.flush();
  lookups_.flush_uses();
  housekeeping_.finish();
  return {};
}

void Server::on_reload(std::function<void()> reload) {
  housekeeping_.set_reload([this, reload = std::move(reload)] {
    reload();
    loop_->post([this] { lookups_.cache().forget({}); });
  });
}

void Server::end_round() {
  // Before finished compiles send their results, so that closed sessions get none.
  sessions_.remove_closed([this](const Session& closed) { scheduler_.drop(closed.request(0)); });
  counters_.loop_rounds = loop_->rounds();
  counters_.loop_longest_round_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(loop_->longest_round()).count());
  if (draining_ && scheduler_.idle() && (pool_->outstanding() == 0 || is_drain_over_)) {
    loop_->stop();
  }
}

void Server::handle_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGHUP) {
      housekeeping_.reload();
    } else if (draining_) {
      log_.info("a second signal: running compiles are cancelled");
      scheduler_.cancel_all();
    } else {
      drain();
    }
  }
}

void Server::drain() {
  log_.info("draining: no new compiles are accepted");
  pool_->submit<bool>(
      [this] {
        manager_.notify("STOPPING=1\nSTATUS=Waiting for running compiles");
        return Result<bool>(true);
      },
      [](const Result<bool>&) {});
  draining_ = true;
  drain_deadline_.set_after(options_.drain_timeout);
  housekeeping_.stop();
  if (acceptor_.is_inherited()) {  // connections wait for the service manager's next daemon
    acceptor_.stop();
  }
  scheduler_.drain();
}

void Server::notify_watchdog() {
  manager_.notify("WATCHDOG=1", false);
  watchdog_.set_after(manager_.watchdog / 2);
}

void Server::accept(UniqueFd socket) {
  if (draining_) {  // closed, so that the client need not time out
    return reject(std::move(socket), counters_.rejected_draining);
  }
  const auto peer = wire::peer_of(socket.get());
  if (!peer || peer->user != ::geteuid()) {
    if (peer) {
      log_.warn("rejected process {} of user {}: this cukilnd serves user {} only", peer->process,
                peer->user, ::geteuid());
    }
    return reject(std::move(socket), counters_.rejected_user);
  }
  if (!sessions_.has_room()) {
    return reject(std::move(socket), counters_.rejected_limit);
  }
  // A reload may have changed the remote store.
  greeting_.shares_blobs = options_.remote != nullptr && options_.remote->shares_blobs();
  if (!sessions_.add(++last_connection_, std::move(socket), *peer, greeting_.encode())) {
    ++counters_.rejected_limit;
    return;
  }
  ++counters_.connections_accepted;
}

/// Counts and closes a connection whose client may have sent descriptors already.
void Server::reject(UniqueFd socket, std::uint64_t& counter) {
  ++counter;
  ::shutdown(socket.get(), SHUT_RDWR);
  closing_->close(std::move(socket));
}

wire::DaemonSnapshot Server::describe() {
  wire::DaemonSnapshot snapshot;
  snapshot.process = static_cast<std::uint32_t>(::getpid());
  snapshot.build = version();
  snapshot.store = store_.disk() != nullptr ? store_.disk()->directory().root() : std::string();
  snapshot.socket = acceptor_.path();
  snapshot.page = page_;
  snapshot.draining = draining_;
  snapshot.uptime_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<milliseconds>(SteadyClock::now() - started_).count());
  snapshot.counters = counters_.named();
  scheduler_.compiles().describe(snapshot);
  snapshot.counters.emplace_back("connections", sessions_.size());
  snapshot.counters.emplace_back("quarantined", scheduler_.quarantined());
  return snapshot;
}

std::optional<wire::DaemonSnapshot> Server::snapshot(milliseconds timeout) {
  const auto promise = std::make_shared<std::promise<wire::DaemonSnapshot>>();
  auto future = promise->get_future();
  loop_->post([this, promise] { promise->set_value(describe()); });
  if (future.wait_for(timeout) != std::future_status::ready) {
    return std::nullopt;
  }
  return future.get();
}

}  // namespace cukiln::daemon
