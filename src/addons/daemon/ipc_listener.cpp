// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/ipc_listener.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "addons/daemon/protocol/unix_socket.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

constexpr int kBacklog = 1024;

/// Makes or checks the socket's folder: another user who can write there could put its own socket
/// in place of the daemon's.
Result<void> prepare_folder(const std::string& folder) {
  constexpr mode_t kForOneUser = 0700;
  if (::mkdir(folder.c_str(), kForOneUser) == 0) {
    ::chmod(folder.c_str(), kForOneUser);  // whatever the umask is
  } else if (errno != EEXIST) {
    return make_error(ErrorCode::io, "cannot create {}: {}", folder, errno_text(errno));
  }
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) {
    return make_error(ErrorCode::io, "cannot stat {}: {}", folder, errno_text(errno));
  }
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() ||
      (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    // Do not suggest chmod for a shared folder such as /tmp.
    const bool is_own =
        S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & S_ISVTX) == 0;
    return make_error(ErrorCode::invalid_argument,
                      "{} cannot be trusted: expected a folder (no link) of user {} that others "
                      "cannot enter; {}",
                      folder, ::geteuid(),
                      is_own ? fmt::format("run chmod 700 {}", folder)
                             : "choose a socket in a folder of its own (CUKILN_DAEMON_SOCKET)");
  }
  return {};
}

/// The path that a socket is bound to; empty if it has none.
std::string path_of(int socket) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  const std::size_t max_bytes =
      size > offsetof(sockaddr_un, sun_path)
          ? std::min<std::size_t>(size, sizeof address) - offsetof(sockaddr_un, sun_path)
          : 0;
  const std::string path(address.sun_path, ::strnlen(address.sun_path, max_bytes));
  return !path.empty() && path.front() == '/' ? path : std::string();
}

}  // namespace

IpcListener::~IpcListener() {
  if (lock.held() && !inherited && !path.empty()) {
    ::unlink(path.c_str());  // the lock is held, so it is this daemon's
  }
}

Result<IpcListener> listen_at(const std::string& wanted, UniqueFd inherited) {
  const std::string own = inherited ? path_of(inherited.get()) : std::string();
  const std::string& path = own.empty() ? wanted : own;
  const std::string folder = path.substr(0, path.find_last_of('/'));
  IpcListener listener;
  if (path.empty() || path.front() != '/') {
    return make_error(ErrorCode::invalid_argument,
                      "invalid socket \"{}\": expected an absolute path", path);
  }
  if (!inherited) {
    CUKILN_CHECK(prepare_folder(folder));
  }
  CUKILN_TRY(listener.lock,
             FileLock::acquire(join_path(folder, "cukilnd.lock"), FileLock::Mode::exclusive,
                               std::chrono::milliseconds(0)));
  if (inherited) {
    listener.path = path;
    listener.inherited = true;
    listener.socket = std::move(inherited);
    return listener;
  }
  CUKILN_TRY(const wire::UnixAddress address, wire::unix_address(path));
  listener.socket = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = listener.socket.get();
  CUKILN_CHECK(wire::remove_dead_socket(path));  // a running daemon would hold the lock
  const mode_t before = ::umask(077);
  const bool bound =
      fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&address.address), address.size) == 0;
  const int why = errno;
  ::umask(before);
  listener.path = bound ? path : std::string();  // ~IpcListener removes it from here on
  if (!bound || ::listen(fd, kBacklog) != 0) {
    return make_error(ErrorCode::io, "cannot listen at {}: {}", path,
                      errno_text(bound ? errno : why));
  }
  return listener;
}

}  // namespace cukiln::daemon
