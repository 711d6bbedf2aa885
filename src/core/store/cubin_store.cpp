// SPDX-License-Identifier: Apache-2.0
#include "core/store/cubin_store.hpp"

#include <utility>

#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"

namespace cukiln {

void StoreEntry::set_request(std::string canonical) {
  request_canonical = std::move(canonical);
  request = CompileRequest::digest_of(request_canonical);
  key = cache_key_of(request, dependencies.canonical());
}

Lookup find_in_sets(const SetTree& sets, ByteView request_canonical, SetCheck& check,
                    const std::function<Lookup(const SetTree::Leaf& leaf)>& read) {
  std::string differs;
  const auto candidates =
      sets.candidates([&](const std::string& path) { return check.label(path); }, &differs);
  if (candidates.empty() && !sets.empty()) {
    check.differs(differs);
  }
  for (const SetTree::Leaf& leaf : candidates) {
    CUKILN_TRY(std::optional<StoreEntry> entry, read(leaf));
    if (entry && entry->request_canonical == request_canonical &&
        check.holds(entry->dependencies, entry->may_trust_toolkit())) {
      return entry;
    }
  }
  return std::optional<StoreEntry>();
}

Result<std::uint64_t> remove_revoked(ObjectTier& tier, const RevokedKeys& keys) {
  std::uint64_t removed = 0;
  if (!keys.any()) {
    return removed;
  }
  const auto remove = [&](const auto& objects, const auto& name_of) -> Result<void> {
    for (const auto& one : objects) {
      if (keys.signed_any_of(one.signer)) {
        CUKILN_TRY(const bool gone, tier.remove(name_of(one)));
        removed += gone ? 1 : 0;
      }
    }
    return {};
  };
  CUKILN_TRY(const auto entries, tier.list());
  CUKILN_CHECK(remove(entries, [](const auto& one) { return ObjectName::of(one.key); }));
  CUKILN_TRY(const auto blobs, tier.list_blobs({}));
  CUKILN_CHECK(remove(blobs, [](const auto& one) { return ObjectName::of(one.id); }));
  return removed;
}

}  // namespace cukiln
