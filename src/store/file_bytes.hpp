// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "store/store_session.hpp"

namespace cukiln {

/// Returns the size of a store's current generation on disk: the database and its write-ahead log.
std::uint64_t file_bytes(StoreSession& session);

}  // namespace cukiln
