// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "base/file.hpp"
#include "remote/endpoint.hpp"

namespace cukiln {

/// A TCP connection to one of a host's addresses, not blocking. A name server that hangs, and
/// addresses that swallow packets, cost no more than the deadline.
struct Connected {
  UniqueFd socket;
  RemoteAnswer failure;  ///< why there is none
};
Connected connect_to(const std::string& host, const std::string& port, SteadyTime deadline);

/// Until it is readable (or writable); false at the deadline.
bool wait_for_socket(int socket, short events, SteadyTime deadline);

}  // namespace cukiln
