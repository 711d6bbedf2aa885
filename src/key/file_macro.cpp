// SPDX-License-Identifier: Apache-2.0
#include "key/file_macro.hpp"

#include <algorithm>
#include <iterator>

namespace cukiln {

bool names_its_file(ByteView text) {
  static constexpr std::string_view kSpellings[] = {"__FILE__", "__BASE_FILE__", "__builtin_FILE",
                                                    "source_location"};
  return std::any_of(std::begin(kSpellings), std::end(kSpellings), [&](std::string_view spelling) {
    return text.find(spelling) != ByteView::npos;
  });
}

bool is_header_of_cuda(std::string_view path) {
  static constexpr std::string_view kFolders[] = {"/cuda/std/", "/cub/", "/thrust/"};
  return std::any_of(std::begin(kFolders), std::end(kFolders), [&](std::string_view folder) {
    return path.find(folder) != std::string_view::npos;
  });
}

}  // namespace cukiln
