// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln::ops {

/// A listening socket, non-blocking.
struct Listener {
  UniqueFd socket;
  bool tcp = false;  ///< reached by any user of this host, and by any page in a browser on it
};

/// A socket file that only its owner reaches; one that is there is replaced. Whoever calls owns the
/// folder and is its only daemon. Errors: as wire::unix_address, io.
Result<Listener> listen_on_unix(const std::string& path);

/// `127.0.0.1:9464`, `[::1]:9464`, `localhost:9464`; port 0 takes a free one.
/// Errors: invalid_argument (no such address, or not loopback), io (the port is taken).
Result<Listener> listen_on_loopback(std::string_view address);

/// The port of a TCP listener; 0 of others.
int port_of(const Listener& listener) noexcept;

}  // namespace cukiln::ops
