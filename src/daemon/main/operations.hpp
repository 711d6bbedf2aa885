// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/file.hpp"
#include "daemon/main/current_remote.hpp"
#include "daemon/server.hpp"
#include "store/tiered_store.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// The operations door (ops/) of the daemon that this process is. Open until it goes.
class Operations {
 public:
  struct Options {
    std::string path;     ///< of its socket, in the folder that this daemon has the lock of
    UniqueFd inherited;   ///< instead of it: the service manager's
    std::string address;  ///< `127.0.0.1:9464`, besides; empty: none
    const CurrentRemote* remote = nullptr;  ///< outlives this
  };
  /// Errors: invalid_argument (the address), io. Null: this program was built without the door, and
  /// no address asks for it.
  static Result<std::unique_ptr<Operations>> open(Options options, Server& server,
                                                  TieredStore& store);
  ~Operations();

  /// Of the address, where port 0 asked for any; 0: there is none.
  int port() const noexcept;

 private:
  struct State;
  explicit Operations(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace cukiln::daemon
