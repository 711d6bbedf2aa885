// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "addons/daemon/protocol/unix_socket.hpp"
#include "cli/command.hpp"
#include "cli/daemon/daemon_status.hpp"
#include "cli/human.hpp"
#include "cli/running_daemon.hpp"
#include "cli/table.hpp"
#include "cli/text.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/loader/settings.hpp"

namespace cukiln::cli {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kStartTimeout{10};
constexpr std::chrono::seconds kStopTimeout{15};
constexpr milliseconds kPollInterval{10};

/// Returns the folder of the running program.
std::string program_folder() {
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  return std::filesystem::path(
             std::string(path.data(), size > 0 ? static_cast<std::size_t>(size) : 0))
      .parent_path()
      .string();
}

std::string daemon_program() { return program_folder() + "/cukilnd"; }

/// Opens the log of a daemon in the background. Refuses a FIFO, at which a write would block, and a
/// file of another user: the folder may be shared. Errors: io.
Result<UniqueFd> open_log(const std::string& path) {
  UniqueFd log(::open(path.c_str(),
                      O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat status {};
  if (!log || ::fstat(log.get(), &status) != 0) {
    return make_error(ErrorCode::io,
                      "cannot write cukilnd's log {}: {}; set CUKILN_DAEMON_SOCKET to a socket in "
                      "another folder",
                      path, errno_text(errno));
  }
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) {
    return make_error(ErrorCode::io,
                      "cannot trust cukilnd's log {}; expected a regular file of user {}; remove "
                      "it, or set CUKILN_DAEMON_SOCKET to a socket in another folder",
                      path, ::geteuid());
  }
  return log;
}

/// The process that made a daemon's socket, as the kernel names it. A daemon cannot choose it,
/// while the number that it reports of itself could be any process's.
struct Listener {
  pid_t process = 0;  ///< 0: none listens, or it belongs to a user other than this one and root
  UniqueFd handle;    ///< its pidfd; empty if the kernel has no pidfds
  std::string name;

  /// False for a service manager that made the socket and passed it to its service.
  bool is_daemon() const { return process != 0 && name == "cukilnd"; }
};

Listener listener_at(const std::string& path) {
  const auto address = wire::unix_address(path);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!address || !socket ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address->address),
                address->size) != 0) {
    return {};
  }
  const auto peer = wire::peer_of(socket.get());
  if (!peer || peer->process <= 0 || (peer->user != ::geteuid() && ::geteuid() != 0)) {
    return {};
  }
  Listener listener{peer->process, {}, {}};
#ifdef SYS_pidfd_open
  listener.handle = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer->process, 0)));
#endif
  std::array<char, 16> name{};
  const UniqueFd comm(
      ::open(fmt::format("/proc/{}/comm", peer->process).c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t size = ::read(comm.get(), name.data(), name.size());
  listener.name = std::string(name.data(), size > 0 ? static_cast<std::size_t>(size) - 1 : 0);
  // If the process ended before its pidfd was opened, the number may be another's by now. Its
  // sockets ended with it, so this connection is closed then.
  pollfd polled{socket.get(), POLLIN | POLLRDHUP, 0};
  const bool closed =
      ::poll(&polled, 1, 0) > 0 && (polled.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  return closed ? Listener() : std::move(listener);
}

/// Returns the process of the cukilnd that listens at a socket but does not answer, because it
/// hangs or is of another version; 0 if there is none, or a service manager made the socket.
pid_t unresponsive_daemon(const std::string& path) {
  const Listener listener = listener_at(path);
  return listener.is_daemon() ? listener.process : 0;
}

/// Sends SIGTERM. False, with errno, if that fails.
bool terminate(const Listener& listener) {
#ifdef SYS_pidfd_send_signal
  if (listener.handle) {
    return ::syscall(SYS_pidfd_send_signal, listener.handle.get(), SIGTERM, nullptr, 0) == 0;
  }
#endif
  return ::kill(listener.process, SIGTERM) == 0;
}

/// True if the process ends within the timeout.
bool await_end(const Listener& listener, SteadyClock::duration timeout) {
  const auto ended = [&listener] {
    pollfd polled{listener.handle.get(), POLLIN, 0};
    return listener.handle ? ::poll(&polled, 1, 0) > 0 : ::kill(listener.process, 0) != 0;
  };
  const auto deadline = SteadyClock::now() + timeout;
  while (!ended()) {
    if (SteadyClock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

/// Returns the last line of the log, if it begins at `start` or later.
std::string last_line(const UniqueFd& log, off_t start) {
  std::string text(4096, '\0');
  const off_t end = ::lseek(log.get(), 0, SEEK_END);
  start = std::max(start, end - static_cast<off_t>(text.size()));
  text.resize(static_cast<std::size_t>(
      std::max<ssize_t>(::pread(log.get(), text.data(), text.size(), start), 0)));
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text.substr(text.rfind('\n') + 1);
}

/// Closes what this process was started with besides its three streams.
void close_other_descriptors() {
  constexpr unsigned kFirst = 3;
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, kFirst, ~0U, 0U) == 0) {
    return;
  }
#endif
  constexpr int kLast = 65536;  // Linux before 5.9
  for (int fd = kFirst; fd < kLast; ++fd) {
    ::close(fd);
  }
}

/// Starts `command` in a session of its own, with `log` as stderr. Returns the process, or -1.
pid_t start_in_background(std::vector<std::string> command, const UniqueFd& log) {
  std::vector<char*> arguments;
  for (std::string& word : command) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const pid_t process = ::fork();
  if (process == 0) {
    ::setsid();
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, 0);
    ::dup2(null, 1);
    ::dup2(log.get(), 2);
    close_other_descriptors();
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  return process;
}

class DaemonCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "daemon",
        "start|stop|status",
        "start, stop or inspect cukilnd, this user's compile daemon",
        "cukilnd compiles for all processes of this user, each kernel once for any number of "
        "concurrent requests. It is optional: a process that finds no daemon compiles by itself. "
        "'status' exits with 3 if no daemon is running. examples/operations/one-host.md shows how "
        "a service manager starts it.",
        {{"cukiln daemon start", "in the background, until it is stopped"},
         {"cukiln daemon start --http 127.0.0.1:9464", "with a status page; prints its address"},
         {"cukiln daemon status --json | jq .compiles",
          "its compiles, and the processes that wait"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("action", action_, "start, stop or status")->type_name("ACTION");
    app.add_option("--http", http_,
                   "with 'start': serve the status page and metrics at this loopback address too, "
                   "such as 127.0.0.1:9464")
        ->type_name("ADDRESS");
  }

  Exit run(Context& context) override {
    const Settings& settings = context.settings();
    socket_ = settings.store.daemon_socket;
    if (socket_.empty()) {
      // As processes search: the daemon may have been started without $XDG_RUNTIME_DIR.
      const auto sockets = daemon_sockets(SettingsSources::of_this_process());
      const auto used = std::find_if(sockets.begin(), sockets.end(), [](const std::string& path) {
        return ask_daemon({path}) || unresponsive_daemon(path) != 0;
      });
      socket_ = used != sockets.end() ? *used : sockets.empty() ? "" : sockets.front();
    }
    if (socket_.empty() || socket_.front() != '/') {
      return context.usage(
          "invalid daemon_socket \"{}\": expected an absolute path (see 'cukiln config')", socket_);
    }
    if (!http_.empty() && action_ != "start") {
      return context.usage("--http needs the action start: cukiln daemon start --http ADDRESS");
    }
    if (action_ == "start") {
      return start(context);
    }
    if (action_ == "stop") {
      return stop(context);
    }
    if (action_ == "status") {
      return status(context);
    }
    if (action_.empty()) {
      return context.usage("an action is missing: expected start, stop or status");
    }
    return context.usage("unknown action \"{}\": expected start, stop or status", action_);
  }

 private:
  Exit print(Context& context, const wire::DaemonSnapshot& snapshot, const char* what) const {
    if (context.json()) {
      context.print_json(json_of(snapshot));
    } else {
      context.print(
          fmt::format("{}: process {} at {}\n{}", what, snapshot.process, snapshot.socket,
                      snapshot.page.empty() ? "" : fmt::format("Page: {}\n", snapshot.page)));
    }
    return Exit::done;
  }

  Exit start(Context& context) const {
    if (const auto running = ask_daemon({socket_})) {
      if (!http_.empty() && running->page.empty()) {
        return context.fail(
            Exit::environment,
            make_error(ErrorCode::invalid_argument,
                       "cukilnd already runs without --http, as process {}; stop it first: cukiln "
                       "daemon stop",
                       running->process));
      }
      return print(context, *running, "Already running");
    } else if (const pid_t process = unresponsive_daemon(socket_); process != 0) {
      return context.fail(
          Exit::environment,
          make_error(
              ErrorCode::io,
              "cukilnd already runs as process {}, but {}; stop it first: cukiln daemon stop",
              process, running.error().message()));
    }
    const std::string program = daemon_program();
    if (!has_daemon_program()) {
      return context.fail(
          Exit::environment,
          make_error(
              ErrorCode::not_found,
              "there is no {}: install cukilnd with 'cmake --install'; the Python package has none",
              program));
    }
    const std::string folder = std::filesystem::path(socket_).parent_path().string();
    std::error_code ignored;
    if (std::filesystem::create_directory(folder, ignored)) {
      std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
    }
    const std::string log_path = folder + "/cukilnd.log";
    const auto log = open_log(log_path);
    if (!log) {
      return context.fail(Exit::environment, log.error());
    }
    const off_t log_start = ::lseek(log->get(), 0, SEEK_END);
    std::vector<std::string> command = {program, "--socket", socket_};
    if (!context.settings().store.directory.empty()) {
      command.insert(command.end(), {"--store", context.settings().store.directory});
    }
    if (!http_.empty()) {
      command.insert(command.end(), {"--http", http_});
    }
    const pid_t process = start_in_background(std::move(command), *log);
    const auto deadline = SteadyClock::now() + kStartTimeout;
    int status = 0;
    while (process > 0 && SteadyClock::now() < deadline) {
      if (const auto running = ask_daemon({socket_})) {
        return print(context, *running, "Started");
      }
      if (::waitpid(process, &status, WNOHANG) == process) {
        break;
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    return context.fail(Exit::environment,
                        make_error(ErrorCode::io, "cukilnd did not start; the end of {}: {}",
                                   log_path, last_line(*log, log_start)));
  }

  void print_not_running(Context& context, const std::string& sentence) const {
    if (context.json()) {
      context.print_json(Json{{"running", false}, {"socket", socket_}});
    } else {
      context.print(sentence);
    }
  }

  Exit stop(Context& context) const {
    const auto running = ask_daemon({socket_});
    const Listener listener = listener_at(socket_);
    if (running && !listener.is_daemon()) {
      return context.fail(
          Exit::environment,
          make_error(ErrorCode::io,
                     "cannot stop the cukilnd at {}: its socket is {}; stop it with the service "
                     "manager that started it, such as: systemctl --user stop cukilnd.service",
                     socket_,
                     listener.process == 0
                         ? "another user's"
                         : fmt::format("that of process {} ({})", listener.process,
                                       printable(listener.name))));
    }
    if (!listener.is_daemon()) {
      print_not_running(context, fmt::format("Not running: no answer at {}\n", socket_));
      return Exit::done;
    }
    const pid_t process = listener.process;
    if (!terminate(listener)) {
      return context.fail(Exit::environment, make_error(ErrorCode::io, "cannot stop process {}: {}",
                                                        process, errno_text(errno)));
    }
    if (!await_end(listener, kStopTimeout)) {
      return context.fail(
          Exit::failed, make_error(ErrorCode::timeout,
                                   "process {} has not ended within {} s; end it with: kill -9 {}",
                                   process, kStopTimeout.count(), process));
    }
    print_not_running(context, fmt::format("Stopped: process {}\n", process));
    return Exit::done;
  }

  Exit status(Context& context) const {
    const auto running = ask_daemon({socket_});
    if (!running) {
      const pid_t process = unresponsive_daemon(socket_);
      print_not_running(context, process == 0
                                     ? fmt::format("Not running: {}\n", running.error().message())
                                     : fmt::format("Process {} does not answer: {}\n", process,
                                                   running.error().message()));
      return Exit::environment;
    }
    if (context.json()) {
      context.print_json(json_of(*running));
    } else {
      context.print(text_of(*running));
    }
    return Exit::done;
  }

  std::string action_;
  std::string http_;
  std::string socket_;
};

}  // namespace

std::unique_ptr<Command> make_daemon() { return std::make_unique<DaemonCommand>(); }

bool has_daemon_program() { return ::access(daemon_program().c_str(), X_OK) == 0; }

}  // namespace cukiln::cli
