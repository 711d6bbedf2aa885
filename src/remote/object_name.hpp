// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/bytes.hpp"
#include "base/hasher.hpp"

#include <cukiln/blob_store.hpp>
#include <cukiln/digest.hpp>

namespace cukiln {

/// The name of an object in every remote store. Each kind of object hashes a prefix of its own, so
/// that objects of two kinds never share a name.
struct ObjectName : Digest256<struct ObjectNameTag> {
  /// Returns the name of a request's dependency sets.
  static ObjectName of_sets(ByteView request_canonical) noexcept;
  /// Returns the name of an entry.
  static ObjectName of_entry(const CacheKey& key) noexcept;
  static ObjectName of_entry(ByteView request_canonical, ByteView set_canonical) noexcept;
  /// Returns the name of a blob, which is its id.
  static ObjectName of_blob(const BlobId& id) noexcept;
  /// Returns the name of the lease of a request whose sets have the name `sets`.
  static ObjectName of_lease(const ObjectName& sets) noexcept;
  /// Returns the name of the signature of an OCI image, by the digest of its unpacked layer.
  static ObjectName of_image(ByteView layer_digest) noexcept;
};

}  // namespace cukiln
