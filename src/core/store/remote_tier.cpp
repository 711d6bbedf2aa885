// SPDX-License-Identifier: Apache-2.0
#include "core/store/remote_tier.hpp"

#include <utility>

#include "core/base/result.hpp"

namespace cukiln {

RemoteLease::RemoteLease(RemoteTier& tier, ByteView request_canonical)
    : tier_(&tier), request_canonical_(request_canonical) {}

RemoteLease::RemoteLease(RemoteLease&& other) noexcept
    : owner_(std::move(other.owner_)),
      tier_(std::exchange(other.tier_, nullptr)),
      request_canonical_(std::move(other.request_canonical_)) {}

RemoteLease& RemoteLease::operator=(RemoteLease&& other) noexcept {
  if (this != &other) {
    release();
    owner_ = std::move(other.owner_);
    tier_ = std::exchange(other.tier_, nullptr);
    request_canonical_ = std::move(other.request_canonical_);
  }
  return *this;
}

RemoteLease::~RemoteLease() { release(); }

void RemoteLease::release() noexcept {
  if (RemoteTier* const tier = std::exchange(tier_, nullptr)) {
    // A lease that cannot be released for lack of memory expires by itself.
    static_cast<void>(guarded([&]() -> Result<void> {
      tier->release_lease(request_canonical_);
      return {};
    }));
  }
  owner_.reset();
}

}  // namespace cukiln
