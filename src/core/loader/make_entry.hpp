// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/compile/compiler.hpp"
#include "core/key/compile_request.hpp"
#include "core/store/cubin_store.hpp"

namespace cukiln {

/// Returns the text for `show --source`: the first source, then each other one after a line with
/// its path.
std::string source_text_of(const CompileRequest& request);

/// Returns the texts that source_text_of joined, in order; one that is not within `joined` is cut,
/// or empty.
std::vector<ByteView> source_texts_in(ByteView joined,
                                      const std::vector<RequestFields::Source>& sources);

/// Returns the entry to store for a result. `canonical` is that of the request.
StoreEntry make_entry(const CompileRequest& request, ByteView canonical, const EntryLabels& labels,
                      const CompileResult& result);

/// Returns the failure to store for a program that NVRTC refused with `log`.
StoreEntry make_failure(const CompileRequest& request, const EntryLabels& labels, std::string log,
                        DependencySet dependencies);

}  // namespace cukiln
