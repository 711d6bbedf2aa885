// SPDX-License-Identifier: Apache-2.0
#include "compile/worker/activation.hpp"

#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "wire/messages.hpp"

namespace cukiln::worker {

namespace {

[[noreturn]] __attribute__((format(printf, 1, 2))) void refuse(const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  std::fputs("cukiln-compile-worker: ", stderr);
  std::vfprintf(stderr, format, values);
  std::fputs("\n", stderr);
  va_end(values);
  ::_exit(1);
}

/// Returns a number of the environment; -1 if it is not there.
long number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtol(text, nullptr, 10) : -1;
}

uid_t user_of(const char* name) {
  char* end = nullptr;
  const unsigned long number = std::strtoul(name, &end, 10);
  if (end != name && *end == '\0') {
    return static_cast<uid_t>(number);
  }
  const passwd* const entry = ::getpwnam(name);
  if (entry == nullptr) {
    refuse("--accept-user %s: there is no such user", name);
  }
  return entry->pw_uid;
}

/// Waits for the end of the child or of the connection. Returns the exit status for this process.
int supervise(pid_t child, int child_ended) {
  for (;;) {
    pollfd polled[2] = {{wire::kWorkerSocket, POLLRDHUP, 0}, {child_ended, POLLIN, 0}};
    if (::poll(polled, 2, -1) < 0 && errno != EINTR) {
      ::kill(child, SIGKILL);
      return 1;
    }
    const bool closed = polled[0].revents != 0;
    if (closed) {
      ::kill(child, SIGKILL);
    }
    int status = 0;
    if (::waitpid(child, &status, closed ? 0 : WNOHANG) != child) {
      continue;
    }
    if (WIFEXITED(status)) {
      return WEXITSTATUS(status);
    }
    if (!closed) {
      std::fprintf(stderr, "cukiln-compile-worker: signal %d (%s) ended the compiler\n",
                   WTERMSIG(status), ::strsignal(WTERMSIG(status)));
      return 128 + WTERMSIG(status);
    }
    return 0;
  }
}

}  // namespace

void accept_connection(const char* user) {
  if (number_of("LISTEN_FDS") != 1 || number_of("LISTEN_PID") != ::getpid()) {
    refuse("--accept-user is for cukiln-worker@.service: expected one connection in LISTEN_FDS");
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(wire::kWorkerSocket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    refuse("SO_PEERCRED failed on the connection: %s", std::strerror(errno));
  }
  if (peer.uid != user_of(user)) {
    refuse("user %u connected, expected %s: --accept-user and SocketUser= name cukilnd's user",
           peer.uid, user);
  }
}

void leave_supervisor() {
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t ended;
  ::sigemptyset(&ended);
  ::sigaddset(&ended, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &ended, nullptr);  // the child unblocks it: isolate_process
  const int child_ended = ::signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
  const pid_t child = child_ended >= 0 ? ::fork() : -1;
  if (child < 0) {
    refuse("cannot fork: %s", std::strerror(errno));
  }
  if (child == 0) {
    return;
  }
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  ::_exit(supervise(child, child_ended));
}

}  // namespace cukiln::worker
