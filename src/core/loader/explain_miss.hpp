// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/loader/builder.hpp"
#include "core/loader/module_request.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/explain.hpp>

namespace cukiln {

/// Explains why the lookup of a request missed. Reads files, the store and, unless it is null, what
/// the remote tier recorded; compiles nothing. Errors: io.
Result<Explanation> explain_miss(const ModuleRequest& request, const Miss& miss, TieredStore& tiers,
                                 StatCache& stat_cache, RemoteTier* remote);

}  // namespace cukiln
