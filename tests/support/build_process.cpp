// SPDX-License-Identifier: Apache-2.0
// A process that compiles one module with a loader, for tests of several processes.
//
//   build_process STORE NVRTC WORKER SOURCE [OPTION…]
//
// Prints one line: the outcome, the key, and the reason if the result was not stored.
//
//   log              prints the loader's messages to stderr
//   fork=FILE        forks once FILE is not empty; the child says `forked` on stderr and sleeps
//   exit=FILE        exits once FILE is not empty, while another thread compiles
//   require-daemon   fails without a daemon
//   interrupted      gets a signal every half a millisecond
//   impatient        limits the compile to two seconds
//   no-processes     may start no process: a seccomp filter refuses it (EPERM)
//   counts           prints a second line: requests to a daemon that were declined and that failed

#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "support/refuse_processes.hpp"

#include <cukiln/cukiln.hpp>

namespace {

std::atomic<int> g_interruptions{0};  // counted by the thread that gets the signal

/// Waits, two minutes at most, for a byte in the file: a file that only exists may belong to a
/// writer that is between its open and its write.
void wait_for(const char* file) {
  struct stat status {};
  for (int i = 0; i < 120'000 && (::stat(file, &status) != 0 || status.st_size == 0); ++i) {
    ::usleep(1000);
  }
}

void be_interrupted() {
  struct sigaction action {};
  action.sa_handler = [](int) { ++g_interruptions; };  // without SA_RESTART
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 500}, {0, 500}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cukiln;
  if (argc < 5) {
    return 2;
  }
  bool with_log = false, requires_daemon = false;
  bool interrupted = false, impatient = false, counts = false, no_processes = false;
  const char* fork_after = nullptr;
  const char* exit_after = nullptr;
  for (int i = 5; i < argc; ++i) {
    with_log |= std::strcmp(argv[i], "log") == 0;
    fork_after = std::strncmp(argv[i], "fork=", 5) == 0 ? argv[i] + 5 : fork_after;
    exit_after = std::strncmp(argv[i], "exit=", 5) == 0 ? argv[i] + 5 : exit_after;
    requires_daemon |= std::strcmp(argv[i], "require-daemon") == 0;
    interrupted |= std::strcmp(argv[i], "interrupted") == 0;
    impatient |= std::strcmp(argv[i], "impatient") == 0;
    counts |= std::strcmp(argv[i], "counts") == 0;
    no_processes |= std::strcmp(argv[i], "no-processes") == 0;
  }
  if (no_processes) {
    // LeakSanitizer needs a process at the end, and without one drops what is buffered.
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    if (!cukiln::testing::refuse_processes()) {
      return 2;
    }
  }
  if (interrupted) {
    be_interrupted();
  }
  StoreOptions store_options;
  store_options.directory = argv[1];
  store_options.system_directory.clear();
  if (requires_daemon) {
    store_options.daemon = DaemonUse::require;
  }
  LoaderOptions options;
  options.nvrtc_library = argv[2];
  options.worker = argv[3];
  if (impatient) {
    options.compile_timeout = std::chrono::milliseconds(2000);
  }
  if (with_log) {
    options.log = [](LogLevel, std::string_view text) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
    };
    store_options.log = options.log;
  }
  auto store = Store::open(store_options);
  if (!store) {
    std::printf("no store: %s\n", store.error().message().c_str());
    return 1;
  }
  auto loader = KernelLoader::create(*store, options);
  ModuleSpec spec;
  spec.sources = {SourceFile{argv[4]}};
  spec.targets = {{90, 'a'}};

  if (fork_after != nullptr) {  // the child has copies of every descriptor
    std::thread([fork_after] {
      wait_for(fork_after);
      if (::fork() == 0) {
        std::fclose(stdout);
        static_cast<void>(!::write(STDERR_FILENO, "forked\n", 7));
        ::sleep(60);
        ::_exit(0);
      }
    }).detach();
  }
  if (exit_after != nullptr) {
    std::thread([&] { static_cast<void>(loader->compile(spec)); }).detach();
    wait_for(exit_after);
    std::exit(0);  // NOLINT: static destructors run while the thread works
  }
  const auto reports = loader->compile(spec);
  if (!reports) {
    std::printf("failed %s\n", reports.error().message().c_str());
    return 1;
  }
  const ModuleReport& report = reports->front();
  if (report.error) {
    std::printf("failed %s\n", report.error->message().c_str());
    return 1;
  }
  std::printf("%s %s %s\n", name_of(report.outcome), report.key.hex().c_str(),
              report.not_stored ? report.not_stored->message().c_str() : "");
  if (counts) {
    const Stats stats = loader->stats();
    std::printf("declined %llu failed %llu\n",
                static_cast<unsigned long long>(stats.daemon_declined),
                static_cast<unsigned long long>(stats.daemon_failed));
  }
  const bool was_quiet = g_interruptions < 10;  // a hit is over too soon for more
  return interrupted && was_quiet && report.outcome == Outcome::compiled ? 3 : 0;
}
