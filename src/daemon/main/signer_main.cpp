// SPDX-License-Identifier: Apache-2.0
#include "daemon/main/signer_main.hpp"

#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/file.hpp"
#include "base/result.hpp"
#include "compile/compiler_by_target.hpp"
#include "compile/nvrtc_compiler.hpp"
#include "daemon/audit_log.hpp"
#include "daemon/ipc_listener.hpp"
#include "daemon/main/live_settings.hpp"
#include "daemon/signer/signer.hpp"
#include "daemon/signer/signer_server.hpp"
#include "loader/make_compiler.hpp"
#include "remote/keys.hpp"
#include "remote/remote_store.hpp"

namespace cukiln::daemon {

namespace {

constexpr const char* kCredential = "remote_sign";

/// Sets a flag and wakes a poll when SIGTERM or SIGINT arrives: the thread that serves may be
/// compiling. SIGHUP is logged: a new key needs a restart.
class StopSignal {
 public:
  explicit StopSignal(const Logger& log)
      : log_(log), wake_(::eventfd(0, EFD_CLOEXEC)), ended_(::eventfd(0, EFD_CLOEXEC)) {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
      ::sigaddset(&signals, signal);
    }
    signals_ = UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    thread_ = std::thread([this] { run(); });
  }
  ~StopSignal() {
    ::eventfd_write(ended_.get(), 1);
    thread_.join();
  }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  const std::atomic<bool>& is_set() const noexcept { return is_set_; }
  /// Readable once it is set.
  int descriptor() const noexcept { return wake_.get(); }

 private:
  void run() {
    std::array<pollfd, 2> polled{{{signals_.get(), POLLIN, 0}, {ended_.get(), POLLIN, 0}}};
    while (polled[1].revents == 0) {
      ::poll(polled.data(), polled.size(), -1);
      signalfd_siginfo info{};
      while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP) {
          log_.warn("the signer reads its settings and its key at its start only: restart it");
          continue;
        }
        is_set_ = true;
        ::eventfd_write(wake_.get(), 1);
      }
    }
  }

  const Logger& log_;
  const UniqueFd wake_, ended_;
  UniqueFd signals_;
  std::atomic<bool> is_set_{false};
  std::thread thread_;
};

/// True if the kernel has Landlock, which keeps the compile workers from the key: they are
/// processes of the user who can read it.
bool has_landlock() {
  constexpr long kCreateRuleset = 444;  // not in all headers
  constexpr unsigned kVersionQuery = 1;
  return ::syscall(kCreateRuleset, nullptr, std::size_t{0}, kVersionQuery) > 0;
}

/// The user of a name or a number.
Result<uid_t> user_of(const std::string& text) {
  uid_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.empty() && error == std::errc{} && end == text.data() + text.size()) {
    return number;
  }
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16 << 10> buffer{};
  if (text.empty() ||
      ::getpwnam_r(text.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return make_error(ErrorCode::invalid_argument,
                      "--signer-accepts {}: expected the user of the daemon, a name or a number",
                      text.empty() ? "is missing" : text);
  }
  return entry.pw_uid;
}

/// The key that systemd has placed for this service, else that of the settings.
Result<SecretKey> load_key(const Settings& settings, const ServiceManager& manager) {
  const std::string credential = join_path(manager.credentials, kCredential);
  if (!manager.credentials.empty() && ::access(credential.c_str(), F_OK) == 0) {
    return SecretKey::load_credential(credential);
  }
  if (settings.remote.sign.empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "the signer has no key: expected the credential {} "
                      "(LoadCredential={}:/etc/cukiln/remote_sign.key) or the setting remote_sign",
                      kCredential, kCredential);
  }
  return SecretKey::load(settings.remote.sign);
}

/// Compilers whose workers compile one request each: text that takes over a worker gets its own
/// result only.
CompilerByTarget make_signer_compiler(const Settings& settings, const Logger& log) {
  NvrtcCompilerOptions options;
  options.search = nvrtc_search(settings.loader);
  options.worker = settings.loader.worker;
  options.memory_bytes = settings.loader.compile_memory_bytes;
  options.reuse_workers = false;
  options.log = log;
  const auto make = [options](std::optional<NvrtcInstall> install) -> std::unique_ptr<Compiler> {
    NvrtcCompilerOptions found = options;
    found.install = std::move(install);
    return std::make_unique<NvrtcCompiler>(std::move(found));
  };
  return {options.search, make, log};
}

}  // namespace

Result<void> run_signer(const SignerArguments& arguments, const Settings& settings,
                        ServiceManager manager, const LogSink& sink) {
  const Logger log(sink);
  ::prctl(PR_SET_DUMPABLE, 0);  // no process of this user reads the key from this one's memory
  CUKILN_TRY(const uid_t accepts, user_of(arguments.accepts));
  if (accepts == ::geteuid()) {
    return make_error(ErrorCode::invalid_argument,
                      "--signer-accepts {}: the signer runs as the daemon's user, which could "
                      "then read the key; run it as a user of its own",
                      arguments.accepts);
  }
  if (!has_landlock()) {
    return Error(ErrorCode::incompatible,
                 "this kernel has no Landlock, so a source text that takes over the compiler could "
                 "read the key: expected Linux 5.13 or later with landlock in "
                 "/sys/kernel/security/lsm");
  }
  CUKILN_TRY(SecretKey key, load_key(settings, manager));
  const RemoteSettings& remote = settings.remote;
  Signer::Options options;
  options.key = key.public_key();
  CUKILN_TRY(options.trusted, TrustedKeys::parse(remote.trust));
  options.compile_timeout = settings.loader.compile_timeout;
  options.log = log;
  CUKILN_TRY(const auto store,
             RemoteStore::open(remote.stores, remote.trust, std::move(key), remote.timeout, log));
  if (store == nullptr) {
    return Error(ErrorCode::invalid_argument,
                 "the signer has no remote store to upload to: set remote (CUKILN_REMOTE)");
  }
  std::unique_ptr<AuditLog> audit;
  if (!arguments.audit.empty() && arguments.audit != "off") {
    AuditLog::Options audit_options;
    audit_options.where = arguments.audit;
    CUKILN_TRY(audit, AuditLog::open(std::move(audit_options), log));
  }
  options.audit = audit.get();
  const std::string wanted = remote.signer_socket.empty() ? kSignerSocket : remote.signer_socket;
  CUKILN_TRY(IpcListener listener,
             listen_at(wanted, true, std::move(manager.ipc_socket), SOCK_SEQPACKET));

  CompilerByTarget compiler = make_signer_compiler(settings, log);
  const std::string name = options.key.name;
  Signer signer(std::move(options), compiler, *store);
  SignerServer server({accepts, audit.get(), log}, std::move(listener.socket), signer);
  const StopSignal stop(log);
  log.info("signing with \"{}\" for user {} at {} (process {})", name, accepts, listener.path,
           ::getpid());
  manager.notify("READY=1\nSTATUS=Serving at " + listener.path);
  auto done = server.run(stop.is_set(), stop.descriptor());
  manager.notify("STOPPING=1");
  finish_uploads(store.get(), log);
  const RemoteStats stats = store->stats();
  log.info("uploaded {} entries, dropped {}", stats.stored, stats.dropped);
  if (audit != nullptr) {
    audit->record({"stopped",
                   ::geteuid(),
                   ::getpid(),
                   {},
                   {{"uploaded", stats.stored}, {"dropped", stats.dropped}}});
  }
  return done;
}

}  // namespace cukiln::daemon
