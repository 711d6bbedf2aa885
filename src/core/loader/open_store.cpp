// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <utility>

#include "core/base/result.hpp"
#include "core/loader/addons.hpp"
#include "core/loader/settings.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/store.hpp>

namespace cukiln {

// Defined in this folder because the default directory comes from the environment, which nothing
// below the loader reads.
Result<Store> Store::open(StoreOptions options) {
  return guarded([&]() -> Result<Store> {
    TieredStore::Options tiers;
    tiers.store = std::move(options);
    const SettingsSources sources = SettingsSources::of_this_process();
    DaemonTier::Options daemon;
    daemon.required = tiers.store.daemon == DaemonUse::require;
    daemon.log = Logger(tiers.store.log);
    daemon.sockets = daemon_sockets(sources, tiers.store);
    if (tiers.store.directory.empty() && !tiers.store.memory_only) {
      tiers.store.memory_only = sources.secure_process;  // another user chose its environment
      if (!sources.secure_process) {
        tiers.store.directory = default_store_directory(sources);
      }
    }
    CUKILN_TRY(std::unique_ptr<TieredStore> opened, TieredStore::open(std::move(tiers)));
    if (!daemon.sockets.empty() && addons().open_daemon != nullptr) {
      daemon.is_own_store = std::bind_front(&TieredStore::is_disk_at, opened.get());
      opened->use_daemon(addons().open_daemon(std::move(daemon)));
    } else if (daemon.required) {
      return make_error(ErrorCode::not_found,
                        "daemon is `require`, and this cukiln was built without src/addons/daemon; "
                        "set daemon to `off`, or build it with that folder");
    }
    return Store(std::move(opened));
  });
}

}  // namespace cukiln
