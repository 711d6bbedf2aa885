// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/base/file.hpp"

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

/// Calls sendmsg once, without blocking and without SIGPIPE. `descriptor` (or -1) is sent with the
/// first byte. Returns the number of bytes, or -1 with errno.
ssize_t send_some(int socket, std::initializer_list<ByteView> parts, int descriptor) noexcept;

/// Calls recvmsg once, without blocking. Appends the descriptors received, which have
/// close-on-exec, to `descriptors`: the caller decides where to close what it did not expect,
/// because that may block.
ssize_t receive_some(int socket, char* to, std::size_t size, std::vector<UniqueFd>& descriptors);

}  // namespace cukiln::wire
