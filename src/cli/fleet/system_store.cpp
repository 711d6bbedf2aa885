// SPDX-License-Identifier: Apache-2.0
#include "cli/system_store.hpp"

#include "addons/fleet/system_store.hpp"
#include "cli/entries.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

Result<void> require_system_stores() { return {}; }

Result<SystemStoreSummary> add_to_system_store(Context& context, const std::string& directory,
                                               const std::vector<CacheKey>& keys) {
  CUKILN_TRY(Store* const store, context.store());
  StoreAdmin admin(*store);
  CUKILN_TRY(auto writer, SystemStoreWriter::create(absolute_path(directory)));
  for (const CacheKey& key : keys) {
    CUKILN_TRY(StoreEntry entry, whole_entry(admin, key));
    CUKILN_TRY([[maybe_unused]] const PutOutcome added, writer.add(std::move(entry)));
  }
  CUKILN_TRY(const SystemStoreWriter::Summary written, writer.finish());
  return SystemStoreSummary{written.directory, written.entries, written.bytes};
}

}  // namespace cukiln::cli
