// SPDX-License-Identifier: Apache-2.0
#include "daemon/server.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <utility>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "daemon/server_client.hpp"
#include "loader/meters.hpp"
#include "wire/daemon_link.hpp"

#include <cukiln/version.hpp>

namespace cukiln::daemon {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kEventsAtOnce = 64;
constexpr int kAcceptsAtOnce = 64;
constexpr std::chrono::seconds kChoreEvery{60};
constexpr milliseconds kAcceptPause{100};
constexpr auto kNever = SteadyClock::time_point::max();

// epoll's data: these, or a client's number.
constexpr std::uint64_t kListenerTag = ~std::uint64_t{0};
constexpr std::uint64_t kMailboxTag = kListenerTag - 1;
constexpr std::uint64_t kSignalTag = kListenerTag - 2;

bool add_to_epoll(int epoll, int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Server::Server(ServerOptions options, TieredStore& store, UserStores& stores, Listener listener,
               ServiceManager manager)
    : options_(std::move(options)),
      store_(store),
      stores_(stores),
      listener_(std::move(listener)),
      manager_(std::move(manager)),
      log_(options_.log),
      reportable_(Meters::names()),
      blobs_(stores, options_.blob_bytes),
      compilers_(options_.loader, options_.system, store),
      flights_(options_.flights, compilers_, stores, options_.remote, *this, mailbox_, counters_,
               options_.log) {
  for (const char* reason : wire::kFallbacks) {
    reportable_.insert(std::string("fallbacks_") + reason);
  }
}

Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(ServerOptions options, TieredStore& store,
                                               UserStores& stores, Listener listener,
                                               ServiceManager manager) {
  std::unique_ptr<Server> self(
      new Server(std::move(options), store, stores, std::move(listener), std::move(manager)));
  wire::Greeting greeting;
  greeting.oldest_version = wire::kDaemonProtocol;
  greeting.newest_version = wire::kDaemonProtocol;
  greeting.system = self->options_.system;
  greeting.watches = self->options_.watch_sources && !self->options_.system;
  if (greeting.watches) {
    self->watch_sources();
  }
  greeting.takes_reports = true;
  greeting.process = static_cast<std::uint32_t>(::getpid());
  greeting.build = version();
  struct stat status {};
  const bool has_entries = !greeting.system && store.disk() != nullptr;
  if (has_entries && ::stat(store.disk()->directory().root().c_str(), &status) == 0) {
    greeting.store_device = status.st_dev;
    greeting.store_inode = status.st_ino;
  }
  self->greeting_ = greeting.encode();

  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    ::sigaddset(&signals, signal);
  }
  self->epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  self->signals_ = UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  self->spare_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int epoll = self->epoll_.get();
  if (!add_to_epoll(epoll, self->listener_.socket.get(), EPOLLIN, kListenerTag) ||
      !add_to_epoll(epoll, self->mailbox_.fd(), EPOLLIN, kMailboxTag) ||
      !add_to_epoll(epoll, self->signals_.get(), EPOLLIN, kSignalTag)) {
    return make_error(ErrorCode::io, "the daemon's loop cannot be set up: {}", errno_text(errno));
  }
  return self;
}

void Server::watch_sources() {
  SourceWatch::Options options;
  options.log = options_.log;
  watch_ = std::make_unique<SourceWatch>(
      std::move(options), store_, [this](SourceWatch::Order order, SourceWatch::Where places) {
        mailbox_.post([this, order = std::move(order), places = std::move(places)] {
          flights_.compile_ahead(order, places);
        });
      });
  flights_.on_compiled(
      [this](SourceWatch::Order order, SourceWatch::Where places, std::string looked_at) {
        watch_->note(std::move(order), std::move(places), std::move(looked_at));
      });
}

Result<void> Server::run() {
  std::array<epoll_event, kEventsAtOnce> events{};
  SteadyClock::time_point awake_until{};
  next_chore_ = SteadyClock::now() + kChoreEvery;
  manager_.notify(fmt::format("READY=1\nSTATUS=Serving at {}", listener_.path));
  for (;;) {
    const SteadyClock::time_point due = do_what_is_due();
    remove_closed();
    if (draining_ && flights_.idle()) {
      break;
    }
    int timeout_ms = -1;
    if (due != kNever) {
      const auto left = std::chrono::ceil<milliseconds>(due - SteadyClock::now()).count();
      timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
    }
    int count = 0;
    while (count == 0 && SteadyClock::now() < awake_until) {
      count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, 0);
      if (count == 0) {
        ::sched_yield();
      }
    }
    if (count == 0) {
      count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, timeout_ms);
    }
    if (count < 0 && errno != EINTR) {
      return make_error(ErrorCode::io, "the daemon's loop cannot wait: {}", errno_text(errno));
    }
    ++counters_.loop_turns;
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      switch (event.data.u64) {
        case kListenerTag: accept_clients(); continue;
        case kMailboxTag:
          remove_closed();  // who has left owns nothing, and is told nothing, of what has ended
          mailbox_.open();
          continue;
        case kSignalTag: take_signal(); continue;
        default: break;
      }
      if (const auto at = clients_.find(event.data.u64);
          at != clients_.end() && !at->second->closed) {
        serve(*at->second, event.events);
        awake_until = SteadyClock::now() + wire::kSpinTime;
      }
    }
  }
  // What was said last is still to be sent, to those who read.
  for (const auto& [number, client] : clients_) {
    write_to(*client);
  }
  for (const std::future<void>* const running : {&chore_running_, &reload_running_}) {
    if (running->valid()) {
      running->wait();
    }
  }
  if (chore_) {
    chore_();
  }
  return {};
}

void Server::take_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGHUP) {
      reload();
      continue;
    }
    if (draining_) {  // asked twice: at once
      flights_.cancel_all();
      continue;
    }
    log_.info("ending: nothing new is taken");
    manager_.notify("STOPPING=1\nSTATUS=What is being compiled may end");
    draining_ = true;
    drain_until_ = SteadyClock::now() + options_.drain_within;
    if (listener_.inherited) {  // the service manager's: who comes now waits for the next daemon
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.socket.get(), nullptr);
    }
    flights_.drain();
  }
}

void Server::reload() {
  if (!reload_ || reloads_asked_.fetch_add(1) != 0) {
    return;  // the thread that is at it does it once more
  }
  // It reads files and may wait for the store's other writers; clients must not.
  reload_running_ = std::async(std::launch::async, [this] {
    for (unsigned asked = reloads_asked_.load();;) {
      manager_.notify(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", steady_ns() / 1000));
      reload_();
      manager_.notify("READY=1");
      if (reloads_asked_.compare_exchange_strong(asked, 0)) {
        return;
      }
    }
  });
}

SteadyClock::time_point Server::do_what_is_due() {
  const auto now = SteadyClock::now();
  SteadyClock::time_point next = flights_.tick(now);
  for (const std::uint64_t number : hurried_) {
    const auto at = clients_.find(number);
    if (at == clients_.end() || at->second->closed) {
      continue;
    }
    if (at->second->deadline <= now) {
      ++counters_.slow_clients;
      close(*at->second);
    } else {
      next = std::min(next, at->second->deadline);
    }
  }
  if (manager_.watchdog.count() > 0) {
    if (now >= next_watchdog_) {
      manager_.notify("WATCHDOG=1");
      next_watchdog_ = now + manager_.watchdog / 2;
    }
    next = std::min(next, next_watchdog_);
  }
  if (draining_) {
    if (now >= drain_until_) {
      flights_.cancel_all();
      drain_until_ = now + std::chrono::seconds(1);
    }
    return std::min(next, drain_until_);
  }
  if (!accepting_) {
    if (now >= accept_again_) {
      accepting_ = add_to_epoll(epoll_.get(), listener_.socket.get(), EPOLLIN, kListenerTag);
      accept_again_ = now + kAcceptPause;
    }
    next = std::min(next, accept_again_);
  }
  if (chore_) {
    if (now >= next_chore_) {
      const bool is_over =
          !chore_running_.valid() ||
          chore_running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      if (is_over) {  // it may wait for other writers, and clients must not
        chore_running_ = std::async(std::launch::async, chore_);
      }
      next_chore_ = now + kChoreEvery;
    }
    next = std::min(next, next_chore_);
  }
  return next;
}

void Server::accept_clients() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    UniqueFd socket(
        ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        refuse_while_out_of_descriptors();
      }
      if (errno != EINTR && errno != ECONNABORTED) {
        return;
      }
      continue;
    }
    if (draining_) {  // hung up on at once, it does without: better than a greeting that never
                      // comes
      ++counters_.rejected_draining;
      continue;
    }
    const auto peer = wire::peer_of(socket.get());
    if (!peer || (!options_.system && peer->user != ::geteuid())) {
      ++counters_.rejected_user;
      continue;
    }
    if (clients_.size() >= options_.max_connections ||
        clients_of_user_[peer->user] >= options_.max_connections_of_user) {
      ++counters_.rejected_limit;
      continue;
    }
    auto client = std::make_unique<Client>();
    client->number = ++last_connection_;
    client->socket = std::move(socket);
    client->peer = *peer;
    client->deadline = SteadyClock::now() + options_.frame_within;
    if (!add_to_epoll(epoll_.get(), client->socket.get(), EPOLLIN | EPOLLRDHUP, client->number)) {
      ++counters_.rejected_limit;
      continue;
    }
    ++counters_.connections_accepted;
    ++clients_of_user_[peer->user];
    hurried_.insert(client->number);
    Client& kept = *client;
    clients_.emplace(kept.number, std::move(client));
    kept.unsent.push_back({greeting_, 0, nullptr});
    kept.unsent_bytes += greeting_.size();
    write_to(kept);
  }
}

/// With no descriptor left the queue could not even be emptied, and the loop would spin: the spare
/// one takes the next in the queue and hangs up, so that it compiles for itself.
void Server::refuse_while_out_of_descriptors() {
  spare_.reset();
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    UniqueFd refused(
        ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!refused) {
      break;
    }
    ++counters_.rejected_limit;
  }
  spare_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!spare_) {  // not even that: look again in a while
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.socket.get(), nullptr);
    accepting_ = false;
    accept_again_ = SteadyClock::now() + kAcceptPause;
  }
  errno = EAGAIN;
}

Asker Server::asker(const Client& client, std::uint64_t id) const noexcept {
  return {.connection = client.number,
          .id = id,
          .process = static_cast<std::uint32_t>(client.peer.process),
          .user = client.peer.user};
}

wire::DaemonSnapshot Server::describe() {
  wire::DaemonSnapshot snapshot;
  snapshot.process = static_cast<std::uint32_t>(::getpid());
  snapshot.build = version();
  snapshot.store = store_.disk() != nullptr ? store_.disk()->directory().root() : std::string();
  snapshot.socket = listener_.path;
  snapshot.system = options_.system;
  snapshot.draining = draining_;
  snapshot.uptime_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<milliseconds>(SteadyClock::now() - began_).count());
  flights_.describe(snapshot);
  snapshot.counters = counters_.named();
  snapshot.counters.emplace_back("connections", clients_.size());
  if (watch_ != nullptr) {
    const FolderWatch::Stats watched = watch_->stats();
    snapshot.counters.emplace_back("watch_directories", watched.folders);
    snapshot.counters.emplace_back("watch_events", watched.events);
    snapshot.counters.emplace_back("watch_overflows", watched.overflows);
    snapshot.counters.emplace_back("watch_limit_reached", watched.limited);
  }
  snapshot.counters.emplace_back("quarantined", flights_.quarantined());
  return snapshot;
}

std::optional<wire::DaemonSnapshot> Server::snapshot(milliseconds patience) {
  const auto promise = std::make_shared<std::promise<wire::DaemonSnapshot>>();
  auto future = promise->get_future();
  mailbox_.post([this, promise] { promise->set_value(describe()); });
  if (future.wait_for(patience) != std::future_status::ready) {
    return std::nullopt;
  }
  return future.get();
}

}  // namespace cukiln::daemon
