// SPDX-License-Identifier: Apache-2.0
#include "core/store/revocation.hpp"

#include "core/base/result.hpp"

namespace cukiln {

Result<std::uint64_t> remove_revoked(ObjectTier& store, const RevokedKeys& keys) {
  std::uint64_t removed = 0;
  if (!keys.any()) {
    return removed;
  }
  const auto remove = [&](const auto& objects, const auto& name_of) -> Result<void> {
    for (const auto& one : objects) {
      if (keys.signed_any_of(one.signer)) {
        CUKILN_TRY(const bool gone, store.remove(name_of(one)));
        removed += gone ? 1 : 0;
      }
    }
    return {};
  };
  CUKILN_TRY(const auto entries, store.list());
  CUKILN_CHECK(remove(entries, [](const auto& one) { return ObjectName::of(one.key); }));
  CUKILN_TRY(const auto blobs, store.list_blobs({}));
  CUKILN_CHECK(remove(blobs, [](const auto& one) { return ObjectName::of(one.id); }));
  return removed;
}

}  // namespace cukiln
