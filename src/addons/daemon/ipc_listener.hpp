// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <string>

#include "core/base/file.hpp"
#include "core/base/file_lock.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// The IPC socket that clients connect to, and the lock file beside it, which only the daemon that
/// serves it holds.
struct IpcListener {
  UniqueFd socket;
  std::string path;
  FileLock lock;
  bool inherited = false;  ///< from the service manager: the socket file is not removed

  IpcListener() = default;
  IpcListener(IpcListener&&) noexcept = default;
  IpcListener& operator=(IpcListener&&) noexcept = default;
  ~IpcListener();
};

/// Creates or checks the socket's folder (0700), acquires the lock beside the socket, and listens.
/// `inherited` is a socket that listens already; its own path is used if it has one.
/// Errors: timeout (another daemon holds the lock), invalid_argument (the folder cannot be trusted;
/// the message says what to do), io.
Result<IpcListener> listen_at(const std::string& wanted, UniqueFd inherited);

}  // namespace cukiln::daemon
