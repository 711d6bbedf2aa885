#pragma once

#include "base/bytes.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// XXH3-128 with seed 0, canonical byte order.
Digest128 digest_of(ByteView bytes) noexcept;

/// XXH3-64, for tables in memory.
std::uint64_t hash64(ByteView bytes) noexcept;

}  // namespace cukiln
