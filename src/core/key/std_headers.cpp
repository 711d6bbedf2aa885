// SPDX-License-Identifier: Apache-2.0
#include "core/key/std_headers.hpp"

#include <algorithm>
#include <span>

#include "core/base/file.hpp"
#include "core/key/compile_request.hpp"
#include "embedded/std_headers.hpp"

namespace cukiln {

std::optional<StdHeader> std_header(std::string_view name) noexcept {
  const std::span<const embedded::File> all = embedded::std_headers();
  const auto at = std::lower_bound(
      all.begin(), all.end(), name,
      [](const embedded::File& file, std::string_view wanted) { return file.name < wanted; });
  if (at == all.end() || at->name != name) {
    return std::nullopt;
  }
  return StdHeader{at->bytes, digest_from<ContentHash>(at->blake2b_256),
                   static_cast<std::uint64_t>(at - all.begin()) + 1};
}

bool is_std_header(std::string_view virtual_path) noexcept {
  constexpr std::string_view kToolkit = kToolkitRoot;
  return virtual_path.size() > kToolkit.size() && is_within(virtual_path, kToolkit) &&
         std_header(virtual_path.substr(kToolkit.size() + 1));
}

std::vector<std::string_view> std_header_names() {
  std::vector<std::string_view> names;
  for (const embedded::File& file : embedded::std_headers()) {
    names.push_back(file.name);
  }
  return names;
}

}  // namespace cukiln
