// SPDX-License-Identifier: Apache-2.0
#include "core/loader/spec_modules.hpp"

#include <algorithm>
#include <utility>

#include "core/base/result.hpp"
#include "core/key/name_expression.hpp"
#include "core/loader/replaced_nvrtc.hpp"

namespace cukiln {

Result<SpecModules> SpecModules::load(KernelLoader::Impl& loader, const ModuleSpec& spec,
                                      const std::optional<CancelToken>& cancel) {
  KernelLoader::Impl::LoadSite site;
  site.cancelled = cancel ? &cancel->flag() : nullptr;
  CUKILN_TRY(site.chosen, loader.devices({}));
  CUKILN_TRY(const auto targets, loader.targets_of(spec, site.chosen));
  SpecModules loaded;
  loaded.name = spec.name;
  for (const Target target : targets) {
    const bool runs = std::any_of(site.chosen.begin(), site.chosen.end(), [&](const DeviceInfo& d) {
      return target.runs_on(d.capability);
    });
    if (!runs && targets.size() > 1) {
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    ModuleReport report;
    CUKILN_TRY(KernelLoader::Impl::Resolved resolved, loader.resolve(spec, target));
    CUKILN_TRY(Built built, get_or_compile(loader, spec, resolved.request,
                                           std::move(resolved.found), report, site.cancelled));
    CUKILN_TRY(auto module, loader.load(resolved.request, built, site, report));
    loaded.name = resolved.request.name;
    report.name = loaded.name;
    report.target = resolved.request.request.target;
    report.elapsed = time_since(start);
    loader.starts.add(report);
    loader.publish(loaded.name, resolved.request.request.target, module->kernels(), false);
    loaded.modules.push_back(std::move(module));
  }
  if (loaded.modules.empty()) {
    return make_error(ErrorCode::incompatible,
                      "module {} has {} targets, and no device runs one of them", loaded.name,
                      targets.size());
  }
  return loaded;
}

Result<Kernel> SpecModules::find(std::string_view kernel) const {
  const std::string wanted = canonical_name(kernel);
  std::vector<std::string> known;
  Kernel found;
  for (const auto& module : modules) {
    for (const Kernel candidate : module->kernels()) {
      known.emplace_back(candidate.name());
      if (!found && (candidate.name() == wanted || candidate.name() == kernel ||
                     (kernel.empty() && module->kernels().size() == 1))) {
        found = candidate;
      }
    }
  }
  if (found) {
    return found;
  }
  if (kernel.empty() && known.size() > 1) {
    return make_error(ErrorCode::invalid_argument,
                      "module {} has several kernels, and no name was given; it has: {}", name,
                      fmt::join(known, ", "));
  }
  return make_error(ErrorCode::not_found, "module {} has no kernel \"{}\"; it has: {}", name,
                    kernel,
                    known.empty() ? "none; a template is compiled only for name expressions (names)"
                                  : fmt::format("{}", fmt::join(known, ", ")));
}

}  // namespace cukiln
