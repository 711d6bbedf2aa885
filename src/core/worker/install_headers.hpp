// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln::worker {

/// Installs the headers that NVRTC carries into `folder`, and writes kHeadersInstalled, or what
/// went wrong, to the owner's socket. Sees no text of a user's, and so needs no sandbox. Returns
/// the exit status.
int install_headers(const char* library, const char* builtins, const char* folder);

}  // namespace cukiln::worker
