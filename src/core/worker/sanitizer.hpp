// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln::worker {

/// True in a build for tests with AddressSanitizer. It reserves terabytes of address space, which
/// RLIMIT_AS would refuse, and has an allocator of its own. Such a worker limits no memory.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace cukiln::worker
