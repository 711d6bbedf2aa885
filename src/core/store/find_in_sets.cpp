// SPDX-License-Identifier: Apache-2.0
#include "core/base/result.hpp"
#include "core/store/cubin_store.hpp"

namespace cukiln {

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

}  // namespace cukiln
