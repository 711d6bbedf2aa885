// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/store/cubin_store.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Compiles the stored sources of an entry to PTX, as LoaderServices::compile_to_ptx does, with the
/// headers of the shipped kernels: a store keeps only cubins. Errors: those of that function.
Result<std::string> recompile_to_ptx(KernelLoader& loader, const StoreEntry& entry,
                                     const std::string& source_text);

}  // namespace cukiln::cli
