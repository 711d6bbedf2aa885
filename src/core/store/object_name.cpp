// SPDX-License-Identifier: Apache-2.0
#include "core/store/object_name.hpp"

#include "core/key/compile_request.hpp"

namespace cukiln {

ObjectName ObjectName::of_sets(ByteView request_canonical) noexcept {
  const RequestDigest request = CompileRequest::digest_of(request_canonical);
  return {hash_of<Digest256<ObjectNameTag>>({"cukiln sets", view_of(request)})};
}

ObjectName ObjectName::of_lease(const ObjectName& sets) noexcept {
  return {hash_of<Digest256<ObjectNameTag>>({"cukiln lease", view_of(sets)})};
}

ObjectName ObjectName::of_image(ByteView layer_digest) noexcept {
  return {hash_of<Digest256<ObjectNameTag>>({"cukiln image", layer_digest})};
}

}  // namespace cukiln
