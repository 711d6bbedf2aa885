// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/result.hpp"
#include "loader/settings.hpp"
#include "store/tiered_store.hpp"

#include <cukiln/store.hpp>

namespace cukiln {

// Here and not with the store: where it is by default is for the environment to say, and nothing
// below the loader reads that.
Result<std::unique_ptr<Store>> v0::open_store(StoreOptions options) {
  return guarded([&]() -> Result<std::unique_ptr<Store>> {
    TieredStore::Options tiers;
    tiers.store = std::move(options);
    const SettingsSources sources = SettingsSources::of_this_process();
    if (tiers.store.daemon != DaemonUse::off) {
      tiers.daemon_sockets = tiers.store.daemon_socket.empty()
                                 ? daemon_sockets(sources)
                                 : std::vector<std::string>{tiers.store.daemon_socket};
    }
    if (tiers.store.directory.empty() && !tiers.store.memory_only) {
      tiers.store.memory_only = sources.secure_process;  // its environment is somebody else's
      if (!sources.secure_process) {
        tiers.store.directory = default_store_directory(sources);
      }
    }
    CUKILN_TRY(std::unique_ptr<TieredStore> opened, TieredStore::open(std::move(tiers)));
    return std::make_unique<Store>(std::move(opened));
  });
}

}  // namespace cukiln
