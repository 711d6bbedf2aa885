// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/ops/http_listener.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "addons/daemon/protocol/unix_socket.hpp"
#include "core/base/result.hpp"

namespace cukiln::ops {

namespace {

constexpr int kBacklog = 256;  // cpp-httplib's own is 5, which a few browser tabs fill

Result<UniqueFd> open_socket(int family) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) {
    return make_error(ErrorCode::io, "cannot create a socket for the admin HTTP server: {}",
                      errno_text(errno));
  }
  return socket;
}

Result<HttpListener> bind_and_listen(UniqueFd socket, const sockaddr* address, socklen_t size,
                                     bool tcp, std::string_view name) {
  if (::bind(socket.get(), address, size) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return make_error(ErrorCode::io, "the admin HTTP server cannot listen on {}: {}", name,
                      errno_text(errno));
  }
  return HttpListener{std::move(socket), tcp};
}

Error bad_address(std::string_view address) {
  return make_error(ErrorCode::invalid_argument,
                    "invalid address \"{}\" for the admin HTTP server: expected 127.0.0.1:PORT, "
                    "[::1]:PORT or localhost:PORT; for other hosts, put a proxy in front of it",
                    address);
}

}  // namespace

Result<HttpListener> listen_on_unix(const std::string& path) {
  CUKILN_TRY(const wire::UnixAddress address, wire::unix_address(path));
  CUKILN_TRY(UniqueFd socket, open_socket(AF_UNIX));
  // Before bind, so that the file never exists with a wider mode.
  if (::fchmod(socket.get(), S_IRUSR | S_IWUSR) != 0) {
    return make_error(ErrorCode::io, "cannot set the mode of the admin HTTP server's socket: {}",
                      errno_text(errno));
  }
  CUKILN_CHECK(wire::remove_dead_socket(path));
  return bind_and_listen(std::move(socket), reinterpret_cast<const sockaddr*>(&address.address),
                         address.size, false, path);
}

Result<HttpListener> listen_on_loopback(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) {
    return bad_address(address);
  }
  const std::string_view digits = address.substr(colon + 1);
  std::string host(address.substr(0, colon));
  std::uint16_t port = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || code != std::errc() || end != digits.data() + digits.size()) {
    return bad_address(address);
  }
  const int on = 1;
  if (host == "[::1]") {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_addr = in6addr_loopback;
    to.sin6_port = htons(port);
    CUKILN_TRY(UniqueFd socket, open_socket(AF_INET6));
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind_and_listen(std::move(socket), reinterpret_cast<const sockaddr*>(&to), sizeof to,
                           true, address);
  }
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  host = host == "localhost" ? "127.0.0.1" : host;
  if (::inet_pton(AF_INET, host.c_str(), &to.sin_addr) != 1 ||
      ntohl(to.sin_addr.s_addr) >> IN_CLASSA_NSHIFT != IN_LOOPBACKNET) {
    return bad_address(address);
  }
  CUKILN_TRY(UniqueFd socket, open_socket(AF_INET));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return bind_and_listen(std::move(socket), reinterpret_cast<const sockaddr*>(&to), sizeof to, true,
                         address);
}

int port_of(const HttpListener& listener) noexcept {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (!listener.tcp ||
      ::getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return 0;
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace cukiln::ops
