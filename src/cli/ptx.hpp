// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "store/cubin_store.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Compiles the stored source of an entry to PTX, with the recorded flags, for the entry's virtual
/// architecture: a store keeps only cubins. Errors: incompatible (the entry has several sources, or
/// a header is missing or has changed), those of the compiler.
Result<std::string> recompile_to_ptx(KernelLoader& loader, const StoreEntry& entry,
                                     const std::string& source_text);

}  // namespace cukiln::cli
