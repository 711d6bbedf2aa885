// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "addons/daemon/main/current_remote.hpp"
#include "addons/daemon/server.hpp"
#include "core/base/file.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// The admin HTTP server (ops/) of this process's daemon. It serves until it is destroyed.
class AdminHttp {
 public:
  struct Options {
    std::string path;     ///< of its socket, in the folder whose lock this daemon holds
    UniqueFd inherited;   ///< a socket of the service manager, used instead of `path`
    std::string address;  ///< a TCP address to listen at too, `127.0.0.1:9464`; may be empty
    const CurrentRemote* remote = nullptr;  ///< outlives this
  };
  /// Returns null if this program was built without the server and `address` is empty.
  /// Errors: invalid_argument (the address), io.
  static Result<std::unique_ptr<AdminHttp>> open(Options options, Server& server,
                                                 TieredStore& store);
  ~AdminHttp();

  /// The TCP port that it listens at; 0 if it listens at none.
  int port() const noexcept;

 private:
  struct State;
  explicit AdminHttp(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace cukiln::daemon
