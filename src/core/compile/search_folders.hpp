// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/compile/nvrtc_library.hpp"

namespace cukiln {

/// Calls `visit` with every folder that may hold libnvrtc, in order, whether or not it exists,
/// until it returns true. The folders after that one are not computed: most searches end at the
/// first.
void visit_search_folders(const NvrtcSearch& search,
                          const std::function<bool(const std::string&)>& visit);

/// Returns the header folders that belong to a library in `folder`, by the layouts of wheels,
/// toolkits and Debian.
std::vector<std::string> headers_beside(const std::string& folder);

/// Lists the names in a folder that begin with `prefix`, in descending order, so that newer
/// versions come first. Empty if there is no such folder.
std::vector<std::string> names_in(const std::string& folder, std::string_view prefix = {});

}  // namespace cukiln
