// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/store/cubin_store.hpp"
#include "core/store/signers.hpp"

namespace cukiln {

class TieredStore;

/// Removes entries that were signed by a key that has been revoked since, and returns their number.
/// Costs nothing if no key is revoked. Errors: the store's.
Result<std::uint64_t> remove_revoked(CubinStore& store, const RevokedKeys& keys);
/// The same for entries and blobs.
Result<std::uint64_t> remove_revoked(TieredStore& store, const RevokedKeys& keys);

}  // namespace cukiln
