// SPDX-License-Identifier: Apache-2.0
#include "remote/object_name.hpp"

#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"

namespace cukiln {

ObjectName ObjectName::of_sets(ByteView request_canonical) noexcept {
  const RequestDigest request = CompileRequest::digest_of(request_canonical);
  return {hash_of<Digest256<ObjectNameTag>>({"cukiln sets", view_of(request)})};
}

ObjectName ObjectName::of_entry(const CacheKey& key) noexcept {
  return {hash_of<Digest256<ObjectNameTag>>({"cukiln entry", view_of(key)})};
}

ObjectName ObjectName::of_entry(ByteView request_canonical, ByteView set_canonical) noexcept {
  return of_entry(cache_key_of(request_canonical, set_canonical));
}

ObjectName ObjectName::of_blob(const BlobId& id) noexcept { return {id.bytes}; }

ObjectName ObjectName::of_lease(const ObjectName& sets) noexcept {
  return {hash_of<Digest256<ObjectNameTag>>({"cukiln lease", view_of(sets)})};
}

ObjectName ObjectName::of_image(ByteView layer_digest) noexcept {
  return {hash_of<Digest256<ObjectNameTag>>({"cukiln image", layer_digest})};
}

}  // namespace cukiln
