#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/nvrtc_library.hpp"

namespace cukiln {

/// A folder that may hold libnvrtc, and header folders that would belong to it.
struct SearchPlace {
  std::string libraries;
  std::vector<std::string> headers;
};

/// Every place in order, whether or not it exists.
std::vector<SearchPlace> search_places(const NvrtcSearch& search);

/// Header folders that belong to a library in `folder`, by the layouts of wheels, toolkits and
/// Debian.
std::vector<std::string> headers_beside(const std::string& folder);

/// Names in a folder, sorted descending, so that newer versions come first; empty when there is
/// none.
/// Only those that begin with `prefix`.
std::vector<std::string> names_in(const std::string& folder, std::string_view prefix = {});

}  // namespace cukiln
