// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compile/compiler.hpp"
#include "key/compile_request.hpp"
#include "store/cubin_store.hpp"

namespace cukiln {

/// What `show --source` shows: the first source, and the others behind lines with their names.
std::string source_text_of(const CompileRequest& request);

/// What a store keeps of a compile. `canonical` is the request's.
StoreEntry make_entry(const CompileRequest& request, ByteView canonical, const EntryLabels& labels,
                      const CompileResult& result);

}  // namespace cukiln
