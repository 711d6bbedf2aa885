// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "addons/fleet/endpoint.hpp"
#include "core/base/bytes.hpp"

namespace cukiln {

/// A non-blocking connection to a server.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Return the number of bytes sent or received; 0 from `receive` if the server has closed the
  /// connection; kLater if it would block; kFailed after an error, which `failure` describes.
  virtual std::ptrdiff_t send(ByteView bytes) = 0;
  virtual std::ptrdiff_t receive(char* to, std::size_t size) = 0;
  virtual int socket() const noexcept = 0;  ///< for poll
  const RemoteAnswer& failure() const noexcept { return failure_; }

  static constexpr std::ptrdiff_t kLater = -1, kFailed = -2;

 protected:
  RemoteAnswer failure_;
};

struct OpenedStream {
  std::unique_ptr<ByteStream> stream;
  RemoteAnswer failure;  ///< why there is no stream
};
/// True if this build supports TLS.
bool has_tls() noexcept;
/// Opens an unencrypted connection.
OpenedStream open_stream(const std::string& host, const std::string& port, SteadyTime deadline);
/// Opens a TLS connection. Verifies the server's certificate and that it is for `host`.
OpenedStream open_tls_stream(const std::string& host, const std::string& port, SteadyTime deadline,
                             const RemoteOptions& options);

}  // namespace cukiln
