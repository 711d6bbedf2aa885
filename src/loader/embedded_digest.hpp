// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/bytes.hpp"
#include "base/hasher.hpp"

namespace cukiln {

/// The digest of a text that is part of this library, as the build made it. Nothing: the text lies
/// elsewhere.
std::optional<ContentHash> embedded_digest_of(ByteView text) noexcept;

}  // namespace cukiln
