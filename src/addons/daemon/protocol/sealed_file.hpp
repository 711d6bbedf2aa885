// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/base/bytes.hpp"
#include "core/base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln::wire {

// A sealed file is a memfd that no process can write, shrink or grow any more. Large content is
// passed between processes in one: passing a descriptor costs the same for every size.

/// Makes a sealed file of the concatenated `parts`. Errors: io.
Result<UniqueFd> make_sealed_file(std::initializer_list<ByteView> parts);

/// Whether a descriptor is a file in memory: closing any other one may block for as long as its
/// sender wants. Does not block itself.
bool is_memory_file(int fd) noexcept;

/// Checks a descriptor received from another process and returns its size. Errors: invalid_argument
/// (not sealed, with holes, which are cheap to send and dear to read, or larger than `max_bytes`).
Result<std::uint64_t> check_sealed_file(int fd, std::uint64_t max_bytes);

/// Checks and maps a sealed file. Because it is sealed, the sender cannot truncate it under the
/// reader. Errors: as check_sealed_file, io.
Result<SharedBytes> map_sealed_file(int fd, std::uint64_t max_bytes);

}  // namespace cukiln::wire
