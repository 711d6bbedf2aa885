// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/key/compile_request.hpp"
#include "core/store/cubin_store.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Compiles the stored sources of an entry to PTX, since a store keeps only cubins: with the
/// recorded flags, for the virtual architecture of its target, with the headers of the shipped
/// kernels and `headers`, which the caller found; sources that are linked one by one, each behind a
/// line with its path. Errors: incompatible (a source's text is not stored; a header is missing or
/// has changed), the compiler's.
Result<std::string> compile_to_ptx(KernelLoader& loader, const StoreEntry& entry,
                                   const std::string& source_text,
                                   const std::vector<VirtualSource>& headers);

}  // namespace cukiln::cli
