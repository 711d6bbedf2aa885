// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/cancel_flags.hpp"
#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/logger.hpp"
#include "compile/compiler.hpp"
#include "daemon/audit_log.hpp"
#include "daemon/signer/rate_limit.hpp"
#include "remote/keys.hpp"
#include "store/remote_tier.hpp"
#include "wire/signing_messages.hpp"
#include "wire/unix_socket.hpp"

namespace cukiln::daemon {

/// Decides what is signed for the fleet. The daemon that offers a result is not believed: the
/// signer compiles the request itself, from the texts of the offer, in a worker that nothing else
/// was compiled in, and signs its own result if the daemon's cubin is equal to it. So its key names
/// nothing but what its NVRTC makes of the texts in an entry's key. Threads: one.
class Signer {
 public:
  struct Options {
    PublicKey key;        ///< the one that `remote` signs with
    TrustedKeys trusted;  ///< the fleet's list, which may limit the key
    RateLimit::Limits rate;
    std::chrono::milliseconds compile_timeout{300'000};
    const Clock* clock = &Clock::system();
    AuditLog* audit = nullptr;  ///< may be null
    Logger log;
  };
  /// Both outlive the signer. `remote` signs and uploads what it is given, in a thread of its own.
  Signer(Options options, Compiler& compiler, RemoteTier& remote);

  /// Judges an offer of the process `peer`; signs and uploads its entry if nothing is against it.
  wire::SigningVerdict judge(const UniqueFd& offer, const wire::Peer& peer, CancelFlags cancelled);

 private:
  struct Candidate;
  wire::SigningVerdict check(const UniqueFd& offer, Candidate& candidate, CancelFlags cancelled);
  wire::SigningVerdict check_entry(const Candidate& candidate) const;
  wire::SigningVerdict check_key(const std::string& module) const;
  wire::SigningVerdict compile_again(Candidate& candidate, CancelFlags cancelled);

  const Options options_;
  Compiler& compiler_;
  RemoteTier& remote_;
  RateLimit rate_;
};

}  // namespace cukiln::daemon
