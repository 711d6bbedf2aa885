// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "remote/endpoint.hpp"

namespace cukiln {

/// A connection to a server, not blocking.
class Stream {
 public:
  virtual ~Stream() = default;
  /// How many bytes went, or came; 0 of `receive`: the server has closed it; kLater: none just now;
  /// kFailed: it is over, and `failure` says why.
  virtual std::ptrdiff_t send(ByteView bytes) = 0;
  virtual std::ptrdiff_t receive(char* to, std::size_t size) = 0;
  virtual int socket() const noexcept = 0;  ///< to wait for
  const RemoteAnswer& failure() const noexcept { return failure_; }

  static constexpr std::ptrdiff_t kLater = -1, kFailed = -2;

 protected:
  RemoteAnswer failure_;
};

struct OpenedStream {
  std::unique_ptr<Stream> stream;
  RemoteAnswer failure;  ///< why there is none
};
bool has_tls() noexcept;  ///< of this build
OpenedStream open_stream(const std::string& host, const std::string& port, SteadyTime deadline);
/// To the server that its certificate says it is.
OpenedStream open_tls_stream(const std::string& host, const std::string& port, SteadyTime deadline,
                             const RemoteOptions& options);

}  // namespace cukiln
