// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/bytes.hpp"
#include "base/hasher.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// What an object is called wherever it is kept. Each kind hashes a word of its own first, so that
/// no two kinds share a name.
struct ObjectName : Digest256<struct ObjectNameTag> {
  /// Of a request's dependency sets.
  static ObjectName of_sets(ByteView request_canonical) noexcept;
  /// Of one entry.
  static ObjectName of_entry(const CacheKey& key) noexcept;
  static ObjectName of_entry(ByteView request_canonical, ByteView set_canonical) noexcept;
};

}  // namespace cukiln
