// SPDX-License-Identifier: Apache-2.0
// cukilnd: compiles each request once for all processes of a user.
//
//   cukilnd [--socket PATH] [--store DIR] [--jobs N] [--http ADDRESS] [--verbose]
//
// Everything else comes from the settings that the library reads too. It runs in the foreground;
// `cukiln daemon start` or a service manager runs it in the background.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "addons/daemon/ipc_listener.hpp"
#include "addons/daemon/main/admin_http.hpp"
#include "addons/daemon/main/live_settings.hpp"
#include "addons/daemon/main/log_writer.hpp"
#include "addons/daemon/server.hpp"
#include "addons/daemon/service_manager.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/compile/compile_budget.hpp"
#include "core/loader/settings.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/version.hpp>

namespace cukiln::daemon {
namespace {

constexpr const char* kUsage =
    "usage: cukilnd [--socket PATH] [--store DIR] [--jobs N] [--http ADDRESS] [--verbose]\n"
    "               [--version]\n"
    "Compiles each request once for all processes of this user.\n";

constexpr const char* kHelp = R"(
Options:
  --socket PATH   the IPC socket (default: $XDG_RUNTIME_DIR/cukiln/cukilnd.sock, else
                  $TMPDIR/cukiln-<uid>/cukilnd.sock)
  --store DIR     the folder of the store (default: as for every client, see 'cukiln config')
  --jobs N        the number of concurrent compiles (default: the setting jobs, else what affinity,
                  control groups and memory allow)
  --http ADDRESS  serve the admin HTTP server (page, /metrics, /healthz, /readyz) at a loopback
                  address too, such as 127.0.0.1:9464; else only at ops.sock, beside the IPC socket
  --verbose       log everything (default: the setting log)
  --version       print the version
  --help          print this text

Environment (config.toml has the same settings in lower case, without CUKILN_):
  CUKILN_STORE, CUKILN_MAX_SIZE        folder and maximum size of the store
  CUKILN_DAEMON_SOCKET                 as --socket
  CUKILN_NVRTC_LIBRARY, CUKILN_WORKER  paths to use instead of searching
  CUKILN_JOBS                          as --jobs
  CUKILN_MEMORY                        memory of all compile workers together
  CUKILN_REMOTE, CUKILN_REMOTE_TRUST, CUKILN_REMOTE_SIGN
                                       the remote stores, and their keys
  CUKILN_LOG                           error, warn, info or debug
'cukiln config' shows all settings. SIGHUP reloads them. SIGTERM ends the daemon after running
compiles, at most 10 s later. It runs in the foreground; 'cukiln daemon start' runs it in the
background.
)";

enum Exit : int { ok = 0, failed = 1, usage = 2, no_store = 4 };

struct Arguments {
  bool verbose = false;
  std::string socket;
  std::string store;
  std::string http;
  unsigned jobs = 0;
};

/// The options that have a text as their value.
constexpr std::pair<std::string_view, std::string Arguments::*> kTexts[] = {
    {"--socket", &Arguments::socket},
    {"--store", &Arguments::store},
    {"--http", &Arguments::http},
};

/// Options of 0.2 for a daemon of several users.
constexpr std::string_view kDeletedOptions[] = {"--system",        "--audit",  "--worker-socket",
                                                "--signer-socket", "--signer", "--signer-accepts"};

/// Parses the command line. False if the process must end with `status`.
bool parse(int count, char** values, Arguments& out, int& status) {
  for (int i = 1; i < count; ++i) {
    const std::string_view name = values[i];
    const bool has_value = i + 1 < count;
    const auto* const text = std::find_if(std::begin(kTexts), std::end(kTexts),
                                          [&](const auto& one) { return one.first == name; });
    if (std::find(std::begin(kDeletedOptions), std::end(kDeletedOptions), name) !=
        std::end(kDeletedOptions)) {
      std::fprintf(stderr,
                   "cukilnd: %s: cukilnd serves one user now, the one that runs it: remove %s\n%s",
                   values[i], values[i], kUsage);
      status = usage;
      return false;
    }
    if (name == "--verbose") {
      out.verbose = true;
    } else if (text != std::end(kTexts) && has_value) {
      out.*text->second = values[++i];
    } else if (name == "--jobs" && has_value) {
      const std::string_view number = values[++i];
      const auto [end, error] =
          std::from_chars(number.data(), number.data() + number.size(), out.jobs);
      if (error != std::errc{} || end != number.data() + number.size() || out.jobs == 0) {
        std::fprintf(stderr, "cukilnd: --jobs %s: expected a number from 1\n", values[i]);
        status = usage;
        return false;
      }
    } else if (name == "--version") {
      std::printf("cukilnd %s\n", version());
      status = ok;
      return false;
    } else if (name == "--help" || name == "-h") {
      std::fputs(kUsage, stdout);
      std::fputs(kHelp, stdout);
      status = ok;
      return false;
    } else {
      const bool lacks_value = text != std::end(kTexts) || name == "--jobs";
      std::fprintf(stderr, "cukilnd: %s %s\n%s", values[i],
                   lacks_value ? "needs a value" : "is not an option", kUsage);
      status = usage;
      return false;
    }
  }
  return true;
}

int fail(const Error& error) {
  std::fprintf(stderr, "cukilnd: %s\n", error.message().c_str());
  return failed;
}

/// Each client needs a descriptor, and each reply may carry another. Called before other threads
/// exist: with them the kernel waits, for tens of milliseconds, whenever its table of descriptors
/// grows, and the event loop must not.
void raise_descriptor_limit() {
  constexpr rlim_t kMaxUsed = 1 << 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto highest = static_cast<int>(std::min(limit.rlim_cur, kMaxUsed)) - 1;
    const UniqueFd grows_the_table(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, highest));
  }
}

/// Ignores signals, and blocks those that the event loop takes, in all threads. Called before all
/// else: until then each of them ends the process.
void set_signals() {
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2}) {
    ::signal(signal, SIG_IGN);
  }
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    ::sigaddset(&signals, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

std::string socket_path(const Arguments& arguments, const Settings& settings,
                        const SettingsSources& sources) {
  if (!arguments.socket.empty()) {
    return arguments.socket;
  }
  if (!settings.store.daemon_socket.empty()) {
    return settings.store.daemon_socket;
  }
  return daemon_sockets(sources).front();
}

/// Reports why listen_at failed and returns the exit status: 0 if another daemon serves the socket.
int fail_to_listen(const Error& error, const std::string& socket) {
  if (error.code() != ErrorCode::timeout) {
    return fail(error);
  }
  if (::access(socket.c_str(), F_OK) != 0) {
    std::fprintf(stderr,
                 "cukilnd: another cukilnd serves a socket of another name in the folder of %s: "
                 "use a folder for each\n",
                 socket.c_str());
    return failed;
  }
  std::fprintf(stderr, "cukilnd: already running at %s\n", socket.c_str());
  return ok;
}

TieredStore::Options store_options(const Arguments& arguments, const Settings& settings,
                                   const LogSink& sink) {
  TieredStore::Options options;
  options.store = settings.store;
  options.store.log = sink;
  options.disk.maintenance_owner = true;
  options.memory_bytes = 0;  // SealedEntryCache keeps entries in memory
  if (!arguments.store.empty()) {
    options.store.directory = arguments.store;
  }
  return options;
}

ServerOptions server_options(const Arguments& arguments, const Settings& settings,
                             const LogSink& sink) {
  ServerOptions options;
  options.loader = settings.loader;
  options.loader.log = sink;
  const unsigned jobs = arguments.jobs != 0 ? arguments.jobs : settings.loader.jobs;
  options.compiles.max_running = CompileBudget({jobs, settings.loader.memory_bytes}).jobs();
  options.compiles.runs.max_time = settings.loader.compile_timeout;
  options.loader.jobs = options.compiles.max_running;
  options.log = Logger(sink);
  return options;
}

/// Opens the stores and serves `listener` until a signal ends the daemon. Returns the exit status.
int serve(const Arguments& arguments, const SettingsSources& sources, const Settings& settings,
          std::atomic<LogLevel>& max_level, const LogSink& sink, IpcListener listener,
          ServiceManager manager) {
  const Logger log(sink);
  auto store = TieredStore::open(store_options(arguments, settings, sink));
  if (!store) {
    std::fprintf(stderr, "cukilnd: %s\n", store.error().message().c_str());
    return no_store;
  }
  CurrentRemote remote;
  LiveSettings live(sources, settings, {**store, remote, max_level, arguments.verbose}, log);
  live.open_remote();
  ServerOptions options = server_options(arguments, settings, sink);
  options.remote = &remote;
  const std::string socket = listener.path;
  AdminHttp::Options http;
  http.path = join_path(folder_of(socket), "ops.sock");
  http.inherited = std::move(manager.admin_socket);
  http.address = arguments.http;
  http.remote = &remote;
  auto server =
      Server::create(std::move(options), **store, std::move(listener), std::move(manager));
  if (!server) {
    return fail(server.error());
  }
  const auto admin = AdminHttp::open(std::move(http), **server, **store);
  if (!admin) {
    if (!arguments.http.empty()) {
      return fail(admin.error());
    }
    log.warn("{}; clients are served without it", admin.error().message());
  }
  (*server)->on_idle_minute([disk = (*store)->disk(), &log] {
    if (auto done = disk != nullptr ? disk->maintain() : Result<void>(); !done) {
      log.info("maintenance of the store failed: {}", done.error().message());
    }
  });
  (*server)->on_reload([&live] { live.reload(); });
  log.info("serving at {} (process {})", socket, ::getpid());
  if (!arguments.http.empty()) {
    const std::string page = fmt::format("http://localhost:{}/", (*admin)->port());
    log.info("its page is at {}", page);
    (*server)->set_page(page);
  }
  const auto done = (*server)->run();
  finish_uploads(remote.get().get(), log);
  return done ? ok : fail(done.error());
}

int run_daemon(int count, char** values) {
  Arguments arguments;
  int status = ok;
  if (!parse(count, values, arguments, status)) {
    return status;
  }
  ServiceManager manager = ServiceManager::of_this_process();
  ::umask(077);
  raise_descriptor_limit();

  const SettingsSources sources = SettingsSources::of_this_process();
  auto settings = load_settings(sources);
  if (!settings) {
    return fail(settings.error());
  }
  std::atomic<LogLevel> max_level = arguments.verbose ? LogLevel::debug : settings->log_level;
  LogWriter writer;
  const LogSink sink = [&max_level, &writer](LogLevel level, std::string_view text) {
    if (level <= max_level.load(std::memory_order_relaxed)) {
      writer.write(text);
    }
  };
  const Logger log(sink);
  for (const auto* const warnings : {&settings->warnings, &manager.warnings}) {
    for (const std::string& warning : *warnings) {
      log.warn("{}", warning);
    }
  }
  const std::string socket = socket_path(arguments, *settings, sources);
  auto listener = listen_at(socket, std::move(manager.ipc_socket));
  if (!listener) {
    return fail_to_listen(listener.error(), socket);
  }
  return serve(arguments, sources, *settings, max_level, sink, *std::move(listener),
               std::move(manager));
}

}  // namespace
}  // namespace cukiln::daemon

int main(int count, char** values) {
  cukiln::daemon::set_signals();
  auto status = cukiln::guarded(
      [&] { return cukiln::Result<int>(cukiln::daemon::run_daemon(count, values)); });
  if (!status) {
    std::fprintf(stderr, "cukilnd: %s\n", status.error().message().c_str());
    return 1;
  }
  return *status;
}
