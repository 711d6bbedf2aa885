// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/manifest_entries.hpp"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "core/base/result.hpp"
#include "core/loader/loader_services.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kMaxNamed = 5;

}  // namespace

Result<std::vector<ManifestEntry>> entries_of_manifest(Context& context, const Manifest& manifest,
                                                       const std::string& path) {
  CUKILN_TRY(KernelLoader* const loader, context.loader());
  LoaderServices services(*loader);
  std::vector<ManifestEntry> entries;
  std::vector<std::string> missing;
  std::set<std::string> missing_targets;
  for (const ModuleSpec& module : manifest.modules()) {
    CUKILN_TRY(const auto targets, services.targets_without_devices(module));
    for (const Target target : targets) {
      CUKILN_TRY(const auto resolved, services.resolve(module, target));
      const std::string target_name = resolved.target.name();
      if (resolved.entry) {
        entries.push_back({*resolved.entry, target_name});
      } else {
        missing.push_back(fmt::format("{} for {}", resolved.name, target_name));
        missing_targets.insert(target_name);
      }
    }
  }
  if (!missing.empty()) {
    const std::size_t count = missing.size();
    missing.resize(std::min(count, kMaxNamed));
    return make_error(
        ErrorCode::not_found,
        "not in the store: {}{}; 'cukiln preload {} --no-load --arch {}' compiles what is "
        "missing, --arch takes other targets",
        fmt::join(missing, ", "),
        count > kMaxNamed ? fmt::format(" and {} more", count - kMaxNamed) : "", path,
        fmt::join(missing_targets, ","));
  }
  return entries;
}

}  // namespace cukiln::cli
