// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/bytes.hpp"
#include "core/base/hasher.hpp"

#include <cukiln/blob_store.hpp>
#include <cukiln/digest.hpp>

namespace cukiln {

/// The name of an object in every tier. Each kind of object hashes a prefix of its own, so that
/// objects of two kinds never share a name.
struct ObjectName : Digest256<struct ObjectNameTag> {
  /// Returns the name of an entry, which is its key.
  static ObjectName of(const CacheKey& key) noexcept { return {key.bytes}; }
  /// Returns the name of a blob, which is its id.
  static ObjectName of(const BlobId& id) noexcept { return {id.bytes}; }
  /// Returns the name of a request's dependency sets.
  static ObjectName of_sets(ByteView request_canonical) noexcept;
  /// Returns the name of the lease of a request whose sets have the name `sets`.
  static ObjectName of_lease(const ObjectName& sets) noexcept;
  /// Returns the name of the signature of an OCI image, by the digest of its unpacked layer.
  static ObjectName of_image(ByteView layer_digest) noexcept;
};

}  // namespace cukiln

template <>
struct std::hash<cukiln::ObjectName> : std::hash<cukiln::Digest256<cukiln::ObjectNameTag>> {};
