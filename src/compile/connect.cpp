// SPDX-License-Identifier: Apache-2.0
#include "compile/connect.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/result.hpp"
#include "wire/unix_socket.hpp"

namespace cukiln {

Result<UniqueFd> connect_to_worker(const std::string& path) {
  CUKILN_TRY(const wire::UnixAddress to, wire::unix_address(path));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.address), to.size) != 0) {
    const int error = errno;
    return make_error(error == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                      "cannot get a compile worker at {}: {}; start cukiln-worker.socket, or unset "
                      "worker_socket",
                      path, errno_text(error));
  }
  CUKILN_TRY(const wire::Peer peer, wire::peer_of(socket.get()));
  if (peer.user != 0 && peer.user != ::geteuid()) {
    return make_error(ErrorCode::invalid_argument,
                      "user {} listens at {}, the setting worker_socket; expected root, which runs "
                      "the service manager, or user {}",
                      peer.user, path, ::geteuid());
  }
  return socket;
}

}  // namespace cukiln
