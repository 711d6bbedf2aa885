// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/bytes.hpp"

#include <cukiln/blob_store.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// The kind and the key of a blob, and the hash of them, which is its name in every tier.
struct BlobName {
  ByteView kind, key;
  BlobId id;

  /// Errors: invalid_argument (a kind or a key that no blob may have).
  static Result<BlobName> make(ByteView kind, ByteView key);
  /// Does not check the limits.
  static BlobId id_of(ByteView kind, ByteView key) noexcept;
};

}  // namespace cukiln
