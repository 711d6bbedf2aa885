// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln::wire {

/// The address of a socket's path. For a path that is too long (over 107 bytes) the address goes
/// through a descriptor of its folder, which `folder` owns.
struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;
  UniqueFd folder;
};
/// Errors: not_found (a long path whose folder does not exist), invalid_argument (the file name is
/// too long).
Result<UnixAddress> unix_address(const std::string& path);

/// Removes the socket that a dead daemon left at `path`, if there is one, and nothing else.
/// Errors: invalid_argument (something other than a socket is there), io.
Result<void> remove_dead_socket(const std::string& path);

/// The process at the other end of a socket.
struct Peer {
  uid_t user = 0;
  pid_t process = 0;
};
/// Errors: io.
Result<Peer> peer_of(int socket);

/// Whether a client of user `self` may trust a daemon of user `peer` that listens on a socket in
/// `folder`. Trusted are the user itself, root, and the owner of the folder if only root can have
/// created it; `above` is the folder's parent.
bool is_trusted_peer(uid_t peer, uid_t self, const struct stat& folder,
                     const struct stat& above) noexcept;

/// The process that listens where a client of user `self` has connected to `path`.
struct Listener {
  uid_t user = 0;
  bool is_trusted = false;  ///< as is_trusted_peer
};
/// Errors: io.
Result<Listener> listener_at(int socket, const std::string& path, uid_t self);

/// Calls sendmsg once, without blocking and without SIGPIPE. `descriptor` (or -1) is sent with the
/// first byte. Returns the number of bytes, or -1 with errno.
ssize_t send_some(int socket, std::initializer_list<ByteView> parts, int descriptor) noexcept;

/// Calls recvmsg once, without blocking. Appends the descriptors received, which have
/// close-on-exec, to `descriptors`: the caller decides where to close what it did not expect,
/// because that may block.
ssize_t receive_some(int socket, char* to, std::size_t size, std::vector<UniqueFd>& descriptors);

}  // namespace cukiln::wire
