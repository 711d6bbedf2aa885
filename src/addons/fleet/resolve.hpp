// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "addons/fleet/endpoint.hpp"
#include "core/base/file.hpp"

namespace cukiln {

/// A non-blocking TCP connection to one of a host's addresses.
struct Connected {
  UniqueFd socket;       ///< empty after a failure
  RemoteAnswer failure;  ///< why there is no socket
};
/// Connects to the first address that accepts. Ends at the deadline, even if the name server hangs
/// or an address drops packets.
Connected connect_to(const std::string& host, const std::string& port, SteadyTime deadline);

/// Waits until the socket has one of poll's `events`. False at the deadline.
bool wait_for_socket(int socket, short events, SteadyTime deadline);

}  // namespace cukiln
