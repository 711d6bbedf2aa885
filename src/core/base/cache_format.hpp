// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {

/// The number of the one format that all has that outlives a process (cache/FORMAT.md): keys,
/// stores, bundles, and objects of remote stores. Raise it when the encoding of one of them
/// changes, or the virtual folders, or the arguments that the worker adds: all of them are then
/// new, and none of another number is read.
#define CUKILN_CACHE_FORMAT "6"
inline constexpr std::uint32_t kCacheFormat = 6;
static_assert(CUKILN_CACHE_FORMAT[0] == '0' + kCacheFormat);

}  // namespace cukiln
