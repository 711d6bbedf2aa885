// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "base/file.hpp"
#include "support/scratch.hpp"
#include "wire/unix_socket.hpp"

namespace cukiln::testing {

/// The user of workers that a service manager starts.
inline constexpr uid_t kWorkerUser = 64'004;

/// A service manager that starts a worker for each connection to its socket, as
/// cukiln-worker.socket asks systemd to: a process that accepts, forks, becomes another user and
/// runs the worker. The destructor ends it, and no worker.
class WorkerListener {
 public:
  struct Options {
    std::string path;     ///< of the socket
    std::string program;  ///< the worker
    std::string log;      ///< the file that gets what workers write to stderr
    uid_t socket_user = ::geteuid();
    uid_t accepted_user = ::geteuid();  ///< of `--accept-user`
    uid_t worker_user = kWorkerUser;    ///< only root's can be another one than this process's
    mode_t mode = 0600;
  };

  explicit WorkerListener(const Options& options) {
    const auto address = wire::unix_address(options.path);
    REQUIRE(address);
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address->address),
                   address->size) == 0);
    REQUIRE(::listen(socket.get(), 64) == 0);
    REQUIRE(::chown(options.path.c_str(), options.socket_user, options.socket_user) == 0);
    REQUIRE(::chmod(options.path.c_str(), options.mode) == 0);
    const UniqueFd log(
        ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::signal(SIGCHLD, SIG_IGN);  // reaps
      for (;;) {
        const int connection = ::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC);
        if (connection >= 0 && ::fork() == 0) {
          ::signal(SIGCHLD, SIG_DFL);
          run_worker(options, connection, log.get());
        }
        ::close(connection);
      }
    }
  }
  ~WorkerListener() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  WorkerListener(const WorkerListener&) = delete;
  WorkerListener& operator=(const WorkerListener&) = delete;

 private:
  [[noreturn]] static void run_worker(const Options& options, int connection, int log) {
    if (options.worker_user != ::geteuid() &&
        (::setgroups(0, nullptr) != 0 ||
         ::setresgid(options.worker_user, options.worker_user, options.worker_user) != 0 ||
         ::setresuid(options.worker_user, options.worker_user, options.worker_user) != 0)) {
      ::_exit(99);
    }
    ::dup2(log, STDERR_FILENO);
    ::fcntl(connection, F_SETFD, 0);
    ::dup2(connection, 3);
    ::setenv("LISTEN_FDS", "1", 1);
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    const std::string user = std::to_string(options.accepted_user);
    ::execl(options.program.c_str(), options.program.c_str(), "--accept-user", user.c_str(),
            static_cast<char*>(nullptr));
    ::_exit(98);
  }

  pid_t process_ = -1;
};

}  // namespace cukiln::testing
