// SPDX-License-Identifier: Apache-2.0
#include "core/loader/loader_services.hpp"

#include <algorithm>
#include <utility>

#include "core/base/result.hpp"
#include "core/key/std_headers.hpp"
#include "core/loader/explain_miss.hpp"
#include "core/loader/loader_impl.hpp"
#include "core/loader/replaced_nvrtc.hpp"

namespace cukiln {

namespace {

/// Whether an entry's compile was served the standard headers for device code: it looked for none
/// of them in vain. An entry that looked for none at all holds either way.
bool had_std_shims(const DependencySet& set) {
  return std::none_of(set.observations.begin(), set.observations.end(), [](const auto& one) {
    return one.kind == Observation::Kind::absent && is_std_header(one.path);
  });
}

}  // namespace

void LoaderServices::set_remote(RemoteTier* remote) noexcept {
  loader_.impl_->builder->set_remote(remote);
}

Result<std::vector<Target>> LoaderServices::targets_of(const ModuleSpec& module) {
  std::vector<DeviceInfo> visible;
  if (module.targets.empty()) {
    if (auto devices = loader_.impl_->devices({})) {
      visible = *std::move(devices);
    }
  }
  return loader_.impl_->targets_of(module, visible);
}

Result<std::vector<Target>> LoaderServices::targets_without_devices(const ModuleSpec& module) {
  return loader_.impl_->targets_of(module, {});
}

Result<LoaderServices::Resolved> LoaderServices::resolve(const ModuleSpec& module, Target target) {
  CUKILN_TRY(auto resolved, loader_.impl_->resolve(module, target, Builder::Purpose::inspect));
  const auto& [request, found] = resolved;
  if (found.entry) {
    return Resolved{request.name,
                    request.request.target,
                    found.entry->key,
                    {},
                    {},
                    request.trusts_recorded_toolkit(found.entry->dependencies)};
  }
  Resolved missed{request.name, request.request.target, {}, found.miss.text(), {}, false};
  if (found.miss.why == Miss::Why::not_stored) {
    KernelLoader::Impl& impl = *loader_.impl_;
    CUKILN_TRY(missed.explanation,
               explain_miss(request, found.miss, impl.tiers, impl.stat_cache, nullptr));
  }
  return missed;
}

std::string LoaderServices::toolchain_mismatch(const StoreEntry& entry) {
  const auto fields = RequestFields::parse(entry.request_canonical);
  if (!fields) {
    return fields.error().message();
  }
  const auto here = compiler(fields->target).toolchain();
  if (here && here->version != fields->toolchain.version) {
    return fmt::format("compiled by nvrtc {}, and this machine has {}", fields->toolchain.version,
                       here->version);
  }
  if (here && here->content != fields->toolchain.content) {
    return fmt::format("compiled by another build of nvrtc {} than this machine's", here->version);
  }
  VirtualRoot root = toolkit_root_of(entry, fields->target);
  root.as_recorded = !here && compiler(fields->target).toolkit_folders().empty();
  FileServer files({std::move(root)}, &loader_.impl_->stat_cache);
  const bool is_trusted = entry.may_trust_toolkit();
  for (const FileServer::Mismatch& found : files.check_all(entry.dependencies, is_trusted)) {
    using What = FileServer::Mismatch::What;
    if (found.what == What::vanished && files.is_as_recorded(found.path)) {
      return Miss{Miss::Why::unvouched, {}}.text();
    }
    if (found.path.starts_with(std::string(kToolkitRoot) + "/") && found.what != What::relinked) {
      const char* const how = found.what == What::changed    ? "changed"
                              : found.what == What::appeared ? "appeared"
                                                             : "vanished";
      return fmt::format("header {}: {}", how, files.real_path(found.path));
    }
  }
  return {};
}

Compiler& LoaderServices::compiler(Target target) {
  return loader_.impl_->compiler->for_target(target);
}

StatCache& LoaderServices::stat_cache() { return loader_.impl_->stat_cache; }

VirtualRoot LoaderServices::toolkit_root_of(const StoreEntry& entry, Target target) {
  return toolkit_root(compiler(target).toolkit_folders(), had_std_shims(entry.dependencies));
}

Result<Built> LoaderServices::build(Target target, const MakeRequest& make, NvrtcFailure& failure) {
  KernelLoader::Impl& impl = *loader_.impl_;
  const EventDelivery delivery(impl.tiers.events(), impl.events);
  ModuleRequest request;
  const auto build_once = [&]() -> Result<Built> {
    CUKILN_TRY(const Toolchain toolchain, impl.compiler->for_target(target).toolchain());
    request = make(toolchain);
    return impl.builder->build(request, impl.builder->look_up(request), {}, nullptr, nullptr,
                               &failure);
  };
  auto built = build_once();
  if (!built && is_of_replaced_nvrtc(*impl.compiler, request, built.error())) {
    built = build_once();
  }
  if (built && built->outcome == Outcome::compiled) {
    // Not at the end of the process: hosts that are killed would read every header at each start.
    impl.tiers.save_stat_records(impl.stat_cache.take_new());
    static_cast<void>(impl.tiers.flush());
  }
  return built;
}

void LoaderServices::put(const StoreEntry& entry) {
  static_cast<void>(loader_.impl_->tiers.put(entry));
}

}  // namespace cukiln
