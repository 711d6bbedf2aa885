// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "addons/daemon/client/daemon_client.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln {

/// Lets a store ask cukilnd. `is_own_store` of the options is set here.
inline void use_daemon(TieredStore& tiers, DaemonClient::Options options) {
  options.is_own_store = [&tiers](const wire::Greeting& greeting) {
    return tiers.is_store_of(greeting);
  };
  tiers.use_daemon(std::make_unique<DaemonClient>(std::move(options)));
}

/// Returns the client of a store that was opened by Store::open; null if no daemon is used.
inline DaemonClient* daemon_of(const TieredStore& tiers) noexcept {
  return static_cast<DaemonClient*>(tiers.daemon());  // it is set above, and nowhere else
}

}  // namespace cukiln
