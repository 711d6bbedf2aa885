// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "store/cubin_store.hpp"
#include "store/signers.hpp"

namespace cukiln {

/// Removes what came from elsewhere and was signed by a key that was taken back since. Costs
/// nothing where no key was. The number of entries that went. Errors: the store's.
Result<std::uint64_t> remove_revoked(CubinStore& store, const RevokedKeys& keys);

}  // namespace cukiln
