// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/loader/addons.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Builds the parts of a request that links: each source, with the name expressions that it
/// resolves, up to `threads` of them concurrently. An expression goes to a source that declares a
/// kernel of its last identifier, else to one that mentions that, else to the first; if it cannot
/// be resolved there, to the next in this order. If no source resolves the name of a symbol and
/// there are objects, it is left to the link. `files` tells which observed paths are one file.
/// Errors: those of `build`; if no source resolves an expression, that of the source which seemed
/// to.
Result<LinkParts> build_parts(const ModuleRequest& whole, FileServer& files, const BuildPart& build,
                              std::size_t threads);

/// Returns the sources that may resolve a name expression, the likeliest first, by index.
std::vector<std::size_t> candidates_of(const std::string& expression,
                                       const std::vector<VirtualSource>& sources);

/// Appends a part's observations to those before it: each path once, with the identity class that
/// it has in all of them. False if the part found something else at a path than one before it.
bool merge_dependencies(const DependencySet& part, FileServer& files, DependencySet& merged);

}  // namespace cukiln
