// SPDX-License-Identifier: Apache-2.0
#include "core/store/remote_tier.hpp"

#include "core/base/result.hpp"

namespace cukiln {

RemoteLease::RemoteLease(RemoteTier& tier, ByteView request_canonical)
    : tier_(&tier, Release{std::string(request_canonical), nullptr}) {}

void RemoteLease::Release::operator()(RemoteTier* tier) const noexcept {
  // A lease that cannot be released for lack of memory expires by itself.
  static_cast<void>(guarded([&]() -> Result<void> {
    tier->release_lease(request_canonical);
    return {};
  }));
}

}  // namespace cukiln
