// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/stream.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "addons/fleet/resolve.hpp"
#include "core/base/file.hpp"

namespace cukiln {

namespace {

class SocketStream final : public ByteStream {
 public:
  explicit SocketStream(UniqueFd socket) : socket_(std::move(socket)) {}

  std::ptrdiff_t send(ByteView bytes) override {
    return outcome(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  std::ptrdiff_t receive(char* to, std::size_t size) override {
    return outcome(::recv(socket_.get(), to, size, 0));
  }
  int socket() const noexcept override { return socket_.get(); }

 private:
  std::ptrdiff_t outcome(ssize_t count) {
    if (count >= 0) {
      return count;
    }
    if (errno == EAGAIN || errno == EINTR) {
      return kLater;
    }
    failure_ = {RemoteStatus::unreachable, {}, errno_text(errno)};
    return kFailed;
  }

  UniqueFd socket_;
};

}  // namespace

OpenedStream open_stream(const std::string& host, const std::string& port, SteadyTime deadline) {
  Connected connected = connect_to(host, port, deadline);
  if (!connected.socket) {
    return {nullptr, std::move(connected.failure)};
  }
  return {std::make_unique<SocketStream>(std::move(connected.socket)), {}};
}

}  // namespace cukiln
