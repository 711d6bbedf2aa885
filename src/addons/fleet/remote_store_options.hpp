// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "addons/fleet/endpoint.hpp"
#include "addons/fleet/keys.hpp"
#include "core/base/clock.hpp"
#include "core/base/logger.hpp"

namespace cukiln {

struct RemoteStoreOptions {
  std::vector<std::unique_ptr<RemoteEndpoint>> endpoints;
  TrustedKeys trusted;
  std::optional<SecretKey> key;  ///< enables uploads; its public half is trusted too
  /// Null if this machine signs nothing.
  const SecretKey* signing_key() const noexcept { return key ? &*key : nullptr; }
  std::string signer() const { return key ? key->public_key().text() : std::string(kUnsigned); }
  /// True if this machine has a key whose signatures the fleet accepts now.
  bool may_sign() const { return key && trusted.may_sign(key->public_key(), clock->now_s()); }
  std::chrono::milliseconds look_up_timeout{200};
  std::chrono::milliseconds upload_timeout{10'000};
  std::size_t max_queued = 64;  ///< uploads
  std::uint64_t max_queued_bytes = 256ull << 20;
  std::chrono::milliseconds absent_for{60'000};  ///< until an absent object is requested again
  std::chrono::milliseconds bad_for{600'000};    ///< until a rejected one is
  std::chrono::milliseconds lease{3'000};        ///< renewed while it is needed
  const Clock* clock = &Clock::system();
  Logger log;
};

}  // namespace cukiln
