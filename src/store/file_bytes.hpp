// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "store/store_session.hpp"

namespace cukiln {

/// What the files of a store's current generation take: the database and its write-ahead log.
std::uint64_t file_bytes(StoreSession& session);

}  // namespace cukiln
