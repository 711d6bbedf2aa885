// SPDX-License-Identifier: Apache-2.0
// cukilnd: compiles for all processes of a user, or of each user of a host, each request once.
//
//   cukilnd [--system] [--socket PATH] [--store DIR] [--jobs N] [--http ADDRESS] [--verbose]
//
// Everything else comes from the settings that the library reads too. It stays in the foreground;
// `cukiln daemon start` puts it into the background, a service manager keeps it there.

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/cores.hpp"
#include "base/file.hpp"
#include "base/result.hpp"
#include "daemon/listener.hpp"
#include "daemon/main/live_settings.hpp"
#include "daemon/main/operations.hpp"
#include "daemon/server.hpp"
#include "daemon/service_manager.hpp"
#include "daemon/user_stores.hpp"
#include "loader/settings.hpp"
#include "store/tiered_store.hpp"

#include <cukiln/version.hpp>

namespace cukiln::daemon {
namespace {

constexpr const char* kUsage =
    "usage: cukilnd [--system] [--socket PATH] [--store DIR] [--jobs N] [--http ADDRESS]\n"
    "               [--verbose] [--version]\n"
    "Compiles for all processes of this user, each request once; with --system for all users of "
    "this\nmachine, each user's requests once.\n";

constexpr const char* kHelp = R"(
Options:
  --system        for all users of this machine, at /run/cukiln/cukilnd.sock; run it as a user of
                  its own, with a store of its own
  --socket PATH   where clients find it (default: $XDG_RUNTIME_DIR/cukiln/cukilnd.sock, else
                  $TMPDIR/cukiln-<uid>/cukilnd.sock)
  --store DIR     where cubins are kept (default: as for every client, see 'cukiln config')
  --jobs N        compiles at once (default: one per core)
  --http ADDRESS  serves its page, /metrics, /healthz and /readyz there too, such as at
                  127.0.0.1:9464; else only at ops.sock, beside its socket
  --verbose       logs everything (default: what the setting log says)
  --version       the version, and nothing else
  --help          this text

Environment (config.toml has the same settings in lower case, without CUKILN_):
  CUKILN_STORE, CUKILN_MAX_SIZE        where the store is, and how large it may become
  CUKILN_DAEMON_SOCKET                 as --socket
  CUKILN_DAEMON_WATCH=0                compiles nothing ahead when a source is saved
  CUKILN_NVRTC_LIBRARY, CUKILN_WORKER  what to use instead of searching
  CUKILN_REMOTE, CUKILN_REMOTE_TRUST, CUKILN_REMOTE_SIGN
                                       the fleet's stores, and their keys
  CUKILN_LOG                           error, warn, info or debug
'cukiln config' shows all settings. SIGHUP reads them again. SIGTERM ends the daemon: what it
compiles then has 10 s. It stays in the foreground; 'cukiln daemon start' puts it into the
background.
)";

enum Exit : int { ok = 0, failed = 1, usage = 2, no_store = 4 };

struct Arguments {
  bool system = false;
  bool verbose = false;
  std::string socket;
  std::string store;
  std::string http;
  unsigned jobs = 0;
};

/// Nothing: the process ends with `status`.
bool parse(int count, char** values, Arguments& out, int& status) {
  for (int i = 1; i < count; ++i) {
    const std::string_view name = values[i];
    const bool has_value = i + 1 < count;
    if (name == "--system") {
      out.system = true;
    } else if (name == "--verbose") {
      out.verbose = true;
    } else if (name == "--socket" && has_value) {
      out.socket = values[++i];
    } else if (name == "--store" && has_value) {
      out.store = values[++i];
    } else if (name == "--http" && has_value) {
      out.http = values[++i];
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
      const bool lacks_value =
          name == "--socket" || name == "--store" || name == "--http" || name == "--jobs";
      std::fprintf(stderr, "cukilnd: %s %s\n%s", values[i],
                   lacks_value ? "needs a value after it" : "is not understood", kUsage);
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

/// So many clients each have a descriptor, and each answer may have one on its way.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

int main_of(int count, char** values) {
  Arguments arguments;
  int status = ok;
  if (!parse(count, values, arguments, status)) {
    return status;
  }
  ServiceManager manager = ServiceManager::of_this_process();
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    ::sigaddset(&signals, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  ::umask(077);
  raise_descriptor_limit();

  const SettingsSources sources = SettingsSources::of_this_process();
  auto settings = load_settings(sources);
  if (!settings) {
    return fail(settings.error());
  }
  if (const auto refused = arguments.system ? refused_for_system(*settings) : std::nullopt) {
    std::fprintf(stderr, "cukilnd: %s\n", refused->c_str());
    return usage;
  }
  std::atomic<LogLevel> most = arguments.verbose ? LogLevel::debug : settings->log_level;
  const LogSink sink = [&most](LogLevel level, std::string_view text) {
    if (level <= most.load(std::memory_order_relaxed)) {
      std::fprintf(stderr, "cukilnd: %.*s\n", static_cast<int>(text.size()), text.data());
    }
  };
  const Logger log(sink);
  for (const auto* const warnings : {&settings->warnings, &manager.warnings}) {
    for (const std::string& warning : *warnings) {
      log.warn("{}", warning);
    }
  }
  std::string socket = !arguments.socket.empty() ? arguments.socket : settings->store.daemon_socket;
  if (socket.empty()) {
    socket = arguments.system ? std::string(kSystemSocket) : daemon_sockets(sources).front();
  }
  auto listener = listen_at(socket, arguments.system, std::move(manager.data_socket));
  if (!listener) {
    if (listener.error().code() == ErrorCode::timeout) {
      if (::access(socket.c_str(), F_OK) != 0) {
        std::fprintf(stderr,
                     "cukilnd: another cukilnd serves in the folder of %s, by another name: give "
                     "each a folder of its own\n",
                     socket.c_str());
        return failed;
      }
      std::fprintf(stderr, "cukilnd: already running at %s\n", socket.c_str());
      return ok;
    }
    return fail(listener.error());
  }

  TieredStore::Options tiers;
  tiers.store = settings->store;
  tiers.store.log = sink;
  tiers.disk.maintenance_owner = true;
  tiers.memory_bytes = 0;  // what is hot is kept ready to be handed out (SealedEntryCache)
  if (!arguments.store.empty()) {
    tiers.store.directory = arguments.store;
  }
  if (arguments.system) {  // what a client names, and other people's stores, are not for it
    tiers.store.system_directory.clear();
  }
  UserStores::Options of_users;
  of_users.each = tiers;
  auto store = TieredStore::open(std::move(tiers));
  if (!store) {
    std::fprintf(stderr, "cukilnd: %s\n", store.error().message().c_str());
    return no_store;
  }
  const auto stores = arguments.system ? std::make_unique<UserStores>(**store, std::move(of_users))
                                       : std::make_unique<UserStores>(**store);
  ServerOptions options;
  options.system = arguments.system;
  options.loader = settings->loader;
  options.loader.log = sink;
  options.compiles.at_once = arguments.jobs != 0          ? arguments.jobs
                             : settings->loader.jobs != 0 ? settings->loader.jobs
                                                          : usable_cores();
  options.compiles.runs.longest = settings->loader.compile_timeout;
  options.loader.jobs = options.compiles.at_once;
  options.watch_sources = settings->watch_sources;
  options.log = log;
  CurrentRemote remote;
  LiveSettings live(sources, *settings,
                    {*stores, remote, most, arguments.system, arguments.verbose}, log);
  live.open_remote();
  options.remote = &remote;
  socket = listener->path;
  Operations::Options doors;
  doors.path = join_path(folder_of(socket), "ops.sock");
  doors.inherited = std::move(manager.operations_socket);
  doors.address = arguments.http;
  doors.remote = &remote;
  auto server = Server::create(std::move(options), **store, *stores, *std::move(listener),
                               std::move(manager));
  if (!server) {
    return fail(server.error());
  }
  const auto operations = Operations::open(std::move(doors), **server, **store);
  if (!operations) {
    if (!arguments.http.empty()) {
      return fail(operations.error());
    }
    log.warn("{}; it serves all the same", operations.error().message());
  }
  (*server)->on_idle_minute([&stores, &log] {
    if (auto done = stores->maintain(); !done) {
      log.info("the store was not maintained: {}", done.error().message());
    }
  });
  (*server)->on_reload([&live] { live.reload(); });
  log.info("serving at {} (process {})", socket, ::getpid());
  if (!arguments.http.empty()) {
    const std::string page = fmt::format("http://localhost:{}/", (*operations)->port());
    log.info("its page is at {}", page);
    (*server)->set_page(page);
  }
  const auto done = (*server)->run();
  finish_uploads(remote.get().get(), log);
  return done ? ok : fail(done.error());
}

}  // namespace
}  // namespace cukiln::daemon

int main(int count, char** values) {
  auto status =
      cukiln::guarded([&] { return cukiln::Result<int>(cukiln::daemon::main_of(count, values)); });
  if (!status) {
    std::fprintf(stderr, "cukilnd: %s\n", status.error().message().c_str());
    return 1;
  }
  return *status;
}
