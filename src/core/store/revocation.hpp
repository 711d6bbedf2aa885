// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/store/cubin_store.hpp"
#include "core/store/signers.hpp"

namespace cukiln {

/// Removes entries and blobs that were signed by a key that has been revoked since, and returns
/// their number. Costs nothing if no key is revoked. Errors: the store's.
Result<std::uint64_t> remove_revoked(ObjectTier& store, const RevokedKeys& keys);

}  // namespace cukiln
