// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace cukiln::worker {

/// Accepts the connection for which a service manager started this process (LISTEN_FDS, as
/// descriptor kWorkerSocket). Ends the process, with a message on stderr, if there is none or if
/// its peer is not `user`, a name or a number.
void accept_connection(const char* user);

/// Forks, and returns in the child, which runs the compiler. The parent ends the child by SIGKILL
/// when the owner closes the connection: a compiler that a text has taken over could keep any
/// thread of its own process from doing it, and the owner, another user, cannot. The parent then
/// ends too; it reports on stderr which signal ended the child otherwise.
void leave_supervisor();

}  // namespace cukiln::worker
