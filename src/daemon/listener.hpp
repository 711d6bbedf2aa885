// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/file.hpp"
#include "base/file_lock.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// A socket that clients connect to, and the lock that says whose it is.
struct Listener {
  UniqueFd socket;
  std::string path;
  FileLock lock;
  bool inherited = false;  ///< the service manager's: it stays where it is

  Listener() = default;
  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&&) noexcept = default;
  ~Listener();
};

/// Makes the socket's folder (0700) or checks it, takes the lock beside the socket, and listens.
/// With `inherited` the socket is there already, and its own path is used if it has one.
/// Errors: timeout (another daemon has the lock), invalid_argument (the folder cannot be trusted;
/// the message says what to do), io.
Result<Listener> listen_at(const std::string& wanted, bool system, UniqueFd inherited = {});

}  // namespace cukiln::daemon
