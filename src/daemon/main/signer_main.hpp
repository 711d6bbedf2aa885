// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/logger.hpp"
#include "daemon/service_manager.hpp"

#include <cukiln/result.hpp>
#include <cukiln/settings.hpp>

namespace cukiln::daemon {

inline constexpr const char* kSignerSocket = "/run/cukiln-signer/sign.sock";

/// The command line of `cukilnd --signer`.
struct SignerArguments {
  std::string accepts;  ///< the daemon's user, a name or a number
  std::string audit;    ///< as of --audit; empty: off
};

/// Runs the signer until a signal ends it. It listens at the setting signer_socket, else at
/// kSignerSocket. The caller has blocked SIGTERM, SIGINT and SIGHUP in all threads.
/// Errors: invalid_argument (arguments, settings, the key), not_found, io, timeout (another signer
/// serves the socket), incompatible (the kernel cannot keep workers from the key).
Result<void> run_signer(const SignerArguments& arguments, const Settings& settings,
                        ServiceManager manager, const LogSink& sink);

}  // namespace cukiln::daemon
