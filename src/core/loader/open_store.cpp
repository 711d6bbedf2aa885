// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/base/result.hpp"
#include "core/loader/settings.hpp"
#include "core/loader/use_daemon.hpp"

#include <cukiln/store.hpp>

namespace cukiln {

// Defined in this folder because the default directory comes from the environment, which nothing
// below the loader reads.
Result<Store> Store::open(StoreOptions options) {
  return guarded([&]() -> Result<Store> {
    TieredStore::Options tiers;
    tiers.store = std::move(options);
    const SettingsSources sources = SettingsSources::of_this_process();
    DaemonClient::Options daemon;
    daemon.required = tiers.store.daemon == DaemonUse::require;
    daemon.log = Logger(tiers.store.log);
    if (tiers.store.daemon != DaemonUse::off) {
      daemon.sockets = tiers.store.daemon_socket.empty()
                           ? daemon_sockets(sources)
                           : std::vector<std::string>{tiers.store.daemon_socket};
    }
    if (tiers.store.directory.empty() && !tiers.store.memory_only) {
      tiers.store.memory_only = sources.secure_process;  // another user chose its environment
      if (!sources.secure_process) {
        tiers.store.directory = default_store_directory(sources);
      }
    }
    CUKILN_TRY(std::unique_ptr<TieredStore> opened, TieredStore::open(std::move(tiers)));
    if (!daemon.sockets.empty()) {
      use_daemon(*opened, std::move(daemon));
    }
    return Store(std::move(opened));
  });
}

}  // namespace cukiln
