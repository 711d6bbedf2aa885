// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/bytes.hpp"
#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln::wire {

/// A file in memory that nobody can change, cut or grow any more: how anything large goes from one
/// process to another. Handed over by descriptor, it costs the same for every size.

/// The concatenation of `parts`. Errors: io.
Result<UniqueFd> make_sealed_file(std::initializer_list<ByteView> parts);

/// The size of one that came from somebody else. Errors: invalid_argument (not sealed, or larger
/// than `max_bytes`).
Result<std::uint64_t> check_sealed_file(int fd, std::uint64_t max_bytes);

/// Its bytes, mapped: a seal keeps them from being cut under the reader. Errors: as
/// check_sealed_file, io.
Result<SharedBytes> map_sealed_file(int fd, std::uint64_t max_bytes);

}  // namespace cukiln::wire
