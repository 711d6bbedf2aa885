// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>

#include <initializer_list>
#include <string>

#include "base/bytes.hpp"
#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln::wire {

/// The address of a socket's path. A path that is too long for one (107 bytes) goes by way of a
/// descriptor of its folder, which `folder` keeps.
struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;
  UniqueFd folder;
};
/// Errors: not_found (a long path whose folder is not there), invalid_argument (no such name can
/// be).
Result<UnixAddress> unix_address(const std::string& path);

/// Makes room for a socket: removes the one that a dead daemon left, and nothing else.
/// Errors: invalid_argument (something that is no socket), io.
Result<void> remove_dead_socket(const std::string& path);

/// Who is at the other end.
struct Peer {
  uid_t user = 0;
  pid_t process = 0;
};
Result<Peer> peer_of(int socket);

/// Whether a client whose user is `self` may believe whoever answers as `peer` on a socket in
/// `folder`: itself, root, or the user that owns the folder, where only root can have made it
/// (`above` is the folder that it is in).
bool is_trusted_peer(uid_t peer, uid_t self, const struct stat& folder,
                     const struct stat& above) noexcept;

/// One try, never blocking, never SIGPIPE; `descriptor` (or -1) goes with the first byte. As
/// sendmsg: the count, or -1 and errno.
ssize_t send_some(int socket, std::initializer_list<ByteView> parts, int descriptor) noexcept;

/// One try, never blocking. As recvmsg; `descriptor` becomes what came along, close-on-exec. A
/// second one is closed.
ssize_t receive_some(int socket, char* to, std::size_t size, UniqueFd& descriptor) noexcept;

}  // namespace cukiln::wire
