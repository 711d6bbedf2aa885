// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln::ops {

/// A listening, non-blocking socket of the admin HTTP server.
struct HttpListener {
  UniqueFd socket;
  bool tcp = false;  ///< any user of this host, and any page in a browser on it, can connect
};

/// Listens on a socket file of mode 0600 and replaces an existing one. The caller must hold the
/// daemon's lock of the folder. Errors: as wire::unix_address, io.
Result<HttpListener> listen_on_unix(const std::string& path);

/// Listens on `127.0.0.1:9464`, `[::1]:9464` or `localhost:9464`; port 0 takes a free one.
/// Errors: invalid_argument (malformed, or not loopback), io (the port is taken).
Result<HttpListener> listen_on_loopback(std::string_view address);

/// The port of a TCP listener; 0 for a Unix socket.
int port_of(const HttpListener& listener) noexcept;

}  // namespace cukiln::ops
