// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/protocol/unix_socket.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "core/base/result.hpp"
#include "core/wire/send_all.hpp"

namespace cukiln::wire {

namespace {

/// The kernel's limit for one message. It would close what found no room, in this thread.
constexpr std::size_t kMaxDescriptors = 253;

}  // namespace

Result<UnixAddress> unix_address(const std::string& path) {
  UnixAddress out;
  out.address.sun_family = AF_UNIX;
  std::string name = path;
  if (name.size() >= sizeof out.address.sun_path) {
    const std::size_t slash = path.find_last_of('/');
    const std::string folder = path.substr(0, slash == std::string::npos ? 0 : slash);
    out.folder = UniqueFd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!out.folder) {
      return make_error(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                        "cannot open the socket's folder {}: {}", folder, errno_text(errno));
    }
    name = fmt::format("/proc/self/fd/{}/{}", out.folder.get(), path.substr(slash + 1));
  }
  if (name.empty() || name.size() >= sizeof out.address.sun_path) {
    return make_error(ErrorCode::invalid_argument,
                      "{} cannot be the path of a socket: its file name may have at most 80 bytes",
                      path);
  }
  std::memcpy(out.address.sun_path, name.data(), name.size());
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1);
  return out;
}

Result<void> remove_dead_socket(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
    return make_error(ErrorCode::invalid_argument,
                      "{} exists and is not a socket: choose another path, or move it away", path);
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return make_error(ErrorCode::io, "cannot replace the socket {}: {}", path, errno_text(errno));
  }
  return {};
}

Result<Peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return make_error(ErrorCode::io, "SO_PEERCRED failed on a socket: {}", errno_text(errno));
  }
  return Peer{credentials.uid, credentials.pid};
}

ssize_t send_some(int socket, std::initializer_list<ByteView> parts, int descriptor) noexcept {
  return send_once(socket, MessageParts(std::span(parts.begin(), parts.size())).left(), descriptor);
}

ssize_t receive_some(int socket, char* to, std::size_t size, std::vector<UniqueFd>& descriptors) {
  iovec piece{to, size};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    return got;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  return got;
}

}  // namespace cukiln::wire
