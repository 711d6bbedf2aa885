// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "store/cubin_store.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/result.hpp>

namespace cukiln::cli {

/// The PTX of an entry. A store keeps cubins: this compiles the stored source again, with the
/// recorded flags, for the entry's virtual architecture. It refuses when a header is not what it
/// was then. Errors: incompatible (several sources, a header that is not here or has changed), the
/// compiler's.
Result<std::string> recompile_to_ptx(KernelLoader& loader, const StoreEntry& entry,
                                     const std::string& source_text);

}  // namespace cukiln::cli
