// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/logger.hpp"
#include "daemon/audit_log.hpp"
#include "daemon/signer/signer.hpp"
#include "wire/unix_socket.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Serves the signer's socket: accepts processes of the daemon's user only, and passes their offers
/// to the signer, one after the other. Threads: one.
class SignerServer {
 public:
  struct Options {
    uid_t accepts = 0;          ///< the daemon's user
    AuditLog* audit = nullptr;  ///< may be null
    Logger log;
  };
  /// `listener` is a SOCK_SEQPACKET socket that listens. `signer` outlives the server.
  SignerServer(Options options, UniqueFd listener, Signer& signer);

  /// Serves until `stopping` is set and `wake` is readable. Errors: io.
  Result<void> run(const std::atomic<bool>& stopping, int wake);

 private:
  struct Connection {
    UniqueFd socket;
    wire::Peer peer;
  };
  void accept();
  void reject(const wire::Peer& peer, const char* reason);
  /// False if the connection has ended.
  bool serve(Connection& connection, const std::atomic<bool>& stopping);

  const Options options_;
  const UniqueFd listener_;
  Signer& signer_;
  std::vector<Connection> connections_;
};

}  // namespace cukiln::daemon
