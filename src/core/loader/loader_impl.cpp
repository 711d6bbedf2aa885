// SPDX-License-Identifier: Apache-2.0
#include "core/loader/loader_impl.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/compile/kernel_names.hpp"
#include "core/key/variables.hpp"

namespace cukiln {

namespace {

constexpr Target kDefaultTarget{100, 'a'};

void describe(const Built& built, ModuleReport& report) {
  report.outcome = built.outcome;
  report.reason = built.reason;
  report.not_stored = built.not_stored;
  report.key = built.entry.key;
  report.cubin_bytes = built.entry.cubin.image.size();
  report.kernels = kernels_among(built.entry.cubin.kernels);
  report.variables = variables_among(built.entry.cubin.kernels);
  report.peak_bytes = built.outcome == Outcome::compiled ? built.entry.peak_bytes : 0;
}

/// Warns that a module is empty if its sources have only templates.
void warn_of_no_kernel(const CompileRequest& request, const std::string& name, const Logger& log) {
  std::string first;
  for (const VirtualSource& source : request.sources) {
    for (const std::string& kernel : kernels_in(source.text.view())) {
      if (!kernel.ends_with(kTemplateMark)) {
        return;  // excluded by the target or a macro: as requested
      }
      first = first.empty() ? kernel : first;
    }
  }
  if (!first.empty()) {
    log.warn(
        "{} for {} has no kernel: its template {} is instantiated only for name expressions, such "
        "as "
        "\"{}<float>\" (names; --name)",
        name, request.target.name(), first, first.substr(0, first.size() - kTemplateMark.size()));
  }
}

Event load_event(const ModuleRequest& request, const CacheKey& key,
                 const Result<std::shared_ptr<LoadedModule>>& module, Milliseconds elapsed) {
  Event event;
  event.kind = EventKind::load;
  event.module = request.name;
  event.target = request.request.target;
  event.key = key;
  event.failed = !module;
  event.reason = module ? std::string() : module.error().message();
  event.elapsed = elapsed;
  return event;
}

}  // namespace

Result<std::shared_ptr<const DriverApi>> KernelLoader::Impl::driver() {
  Driver& own = driver_.get();
  const MutexLock lock(own.mutex);
  if (!own.api) {
    auto opened = DriverApi::open(options.cuda_library);
    if (!opened && opened.error().code() == ErrorCode::not_found) {
      return Error(ErrorCode::driver, opened.error().message());
    }
    CUKILN_TRY(const auto api, std::move(opened));
    CUKILN_TRY(own.devices, list_devices(*api));
    own.api = api;
  }
  return own.api;
}

Result<std::vector<DeviceInfo>> KernelLoader::Impl::devices(const std::vector<int>& ordinals) {
  CUKILN_CHECK(driver());
  const std::vector<DeviceInfo>& visible = driver_.get().devices;
  if (ordinals.empty()) {
    return visible;
  }
  std::vector<DeviceInfo> chosen;
  for (const int ordinal : ordinals) {
    const auto at = std::find_if(visible.begin(), visible.end(),
                                 [&](const DeviceInfo& d) { return d.ordinal == ordinal; });
    if (at == visible.end()) {
      return make_error(ErrorCode::invalid_argument,
                        "there is no device {}; expected an ordinal of the {} visible ones, from 0",
                        ordinal, visible.size());
    }
    chosen.push_back(*at);
  }
  return chosen;
}

Result<std::vector<Target>> KernelLoader::Impl::targets_of(
    const ModuleSpec& spec, const std::vector<DeviceInfo>& available) {
  CUKILN_TRY(std::vector<Target> targets, explicit_targets(spec));
  if (targets.empty()) {
    for (const DeviceInfo& device : available) {
      if (const Target target = target_of(device);
          std::find(targets.begin(), targets.end(), target) == targets.end()) {
        targets.push_back(target);
      }
    }
  }
  if (targets.empty()) {
    targets.push_back(kDefaultTarget);
  }
  return targets;
}

Result<KernelLoader::Impl::Resolved> KernelLoader::Impl::resolve(const ModuleSpec& spec,
                                                                 Target wanted,
                                                                 Builder::Purpose purpose,
                                                                 PhaseMeter* meter) {
  if (purpose == Builder::Purpose::use) {
    recorder.note(spec, wanted);
  }
  CUKILN_TRY(const LinkMode mode, link_mode_of(spec));
  const auto find_toolchains = [&] {
    const PhaseMeter::Scope scope(meter, Phase::find);
    return toolchains->usable_for(wanted, mode != LinkMode::none);
  };
  const auto make_request = [&](const ChosenTarget& usable) -> Result<ModuleRequest> {
    const PhaseMeter::Scope scope(meter, Phase::hash);
    Compiler& own = compiler->for_target(usable.target);
    const std::vector<std::string> toolkit = own.toolkit_folders();
    CUKILN_TRY(ModuleRequest made, make_module_request(spec, usable.target, usable.toolchain,
                                                       toolkit, &stat_cache, usable.linker));
    if (toolkit.empty() && !own.toolchain()) {
      made.trust_recorded_toolkit();
    }
    return made;
  };
  CUKILN_TRY(const auto candidates, find_toolchains());
  std::optional<Resolved> first;
  for (const ChosenTarget& usable : candidates) {
    CUKILN_TRY(ModuleRequest request, make_request(usable));
    flag_notices_.log_new(request.reported_flags, log);
    const PhaseMeter::Scope scope(meter, Phase::look_up);
    Builder::Found found = builder->look_up(request, purpose);
    if (found.entry || !first) {
      first = Resolved{std::move(request), std::move(found)};
    }
    if (first->found.entry) {
      break;
    }
  }
  return *std::move(first);
}

Result<Built> KernelLoader::Impl::get_or_compile(const ModuleRequest& request, Builder::Found found,
                                                 ModuleReport& report,
                                                 const std::atomic<bool>* cancelled,
                                                 PhaseMeter* meter) {
  const EventDelivery delivery(tiers.events(), events);
  auto built = builder->build(
      request, std::move(found),
      [&](const Miss& miss) { return seal.check_compile(request, miss); }, cancelled, meter);
  if (!built) {
    const bool missing = options.offline && built.error().code() == ErrorCode::not_found;
    report.outcome = missing ? Outcome::missing : Outcome::failed;
    return std::move(built).error();
  }
  describe(*built, report);
  if (report.not_stored && tiers.memory_only()) {
    report.not_stored = Error(ErrorCode::incompatible, report.not_stored->message());
  }
  if (report.kernels.empty() && report.variables.empty()) {
    warn_of_no_kernel(request.request, request.name, log);
  }
  if (!built->entry.cubin.log.empty()) {
    report.log = request.files(nullptr)->with_real_paths(built->entry.cubin.log);
  }
  if (built->not_stored) {
    keep_unstored(built->entry);
  }
  return built;
}

void KernelLoader::Impl::keep_unstored(const StoreEntry& entry) {
  const auto in_memory = tiers.peek(entry.key);
  if (!in_memory || !*in_memory) {
    const ForkSafeLock lock(unstored_mutex_);
    unstored_[entry.key] = entry.cubin.image;
  }
}

std::optional<SharedBytes> KernelLoader::Impl::unstored(const CacheKey& key) {
  const ForkSafeLock lock(unstored_mutex_);
  const auto at = unstored_.find(key);
  return at != unstored_.end() ? std::optional(at->second) : std::nullopt;
}

Result<std::shared_ptr<LoadedModule>> KernelLoader::Impl::load(const ModuleRequest& request,
                                                               Built& built, LoadSite& site,
                                                               ModuleReport& report) {
  const EventDelivery delivery(tiers.events(), events);
  if (auto known = modules.find(built.entry.key)) {
    return known;
  }
  CUKILN_CHECK(seal.check_load(request, built.entry.key));
  CUKILN_TRY(const auto api, driver());
  std::vector<int> ordinals;
  for (const DeviceInfo& device : site.chosen) {
    if (request.request.target.runs_on(device.capability)) {
      ordinals.push_back(device.ordinal);
    }
  }
  if (ordinals.empty()) {
    return make_error(ErrorCode::incompatible,
                      "{} was compiled for {}, which runs on none of the {} chosen devices{}",
                      request.name, request.request.target.name(), site.chosen.size(),
                      site.chosen.empty()
                          ? std::string()
                          : fmt::format(" (device {} is {})", site.chosen.front().ordinal,
                                        target_of(site.chosen.front()).name()));
  }
  std::shared_ptr<const DeviceContexts>& contexts = site.contexts[ordinals];
  if (!contexts) {
    CUKILN_TRY(contexts, DeviceContexts::open(api, ordinals));
  }
  const Nvtx::Range range(nvtx, "load", request.name);
  const auto start = std::chrono::steady_clock::now();
  auto module = load_image(request, built.entry, api, contexts, site.capture_guard);
  if (!module && (module.error().code() == ErrorCode::incompatible ||
                  module.error().code() == ErrorCode::corrupt)) {
    log.warn("{}: {}; the entry {} is removed and built again", request.name,
             module.error().message(), built.entry.key.hex());
    if (auto removed = tiers.remove(ObjectName::of(built.entry.key)); !removed) {
      telemetry.count(&Stats::store_errors);
    }
    CUKILN_TRY(built, get_or_compile(request, builder->look_up(request), report, site.cancelled));
    module = load_image(request, built.entry, api, contexts, site.capture_guard);
  }
  report.load_time = time_since(start);
  events.add([&] { return load_event(request, built.entry.key, module, report.load_time); });
  if (!module) {
    return std::move(module).error().with_context(request.name);
  }
  return modules.add(built.entry.key, *std::move(module), spec_to_reload(request));
}

Result<void> KernelLoader::Impl::unload(const CacheKey& key) {
  const std::vector<LoadedModules::Loaded> unloaded = modules.remove(key);
  if (unloaded.empty()) {
    return make_error(ErrorCode::not_found,
                      "no module with the key {} is loaded; unload takes a key that a preload of "
                      "this loader reported",
                      key.hex());
  }
  for (const LoadedModules::Loaded& one : unloaded) {
    table.remove(one.module->kernels());
  }
  return {};
}

void KernelLoader::Impl::publish(const std::string& module_name, Target target,
                                 const std::vector<Kernel>& kernels, bool with_ids) {
  for (const Kernel kernel : kernels) {
    if (with_ids) {
      table.add(kernel);
    }
    const std::string name(kernel.name());
    const std::string qualified = module_name + "/" + name;
    for (const std::string& suffix : {std::string(), "@" + target.name()}) {
      // A bare name stays with the module that had it first, and follows that module's edits.
      const Kernel before = table.find(qualified + suffix);
      const Kernel bare = table.find(name + suffix);
      table.set_name(qualified + suffix, kernel);
      if (!bare || (before && bare.native() == before.native())) {
        table.set_name(name + suffix, kernel);
      }
    }
  }
}

}  // namespace cukiln
