// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "cli/bundle_input.hpp"
#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/module_options.hpp"
#include "cli/table.hpp"
#include "core/base/result.hpp"
#include "core/driver/driver_api.hpp"
#include "core/driver/module.hpp"
#include "core/loader/loader_services.hpp"

namespace cukiln::cli {

namespace {

/// One module and target, and why it cannot be used; no reason: it fits.
struct Fit {
  std::string module;
  std::string target;
  std::optional<CacheKey> key;
  std::string reason;
  bool trusts_recorded_toolkit = false;
};

bool names_no_target(const std::vector<std::string>& flags) {
  return std::none_of(flags.begin(), flags.end(), [](const std::string& flag) {
    return flag.find("arch") != std::string::npos || flag.find("gencode") != std::string::npos;
  });
}

/// Returns why a module does not hit, on one line; empty if it does.
/// `targets`: of the module, which has an entry for each and so nothing to compare between them.
std::string reason_of(const LoaderServices::Resolved& resolved,
                      const std::vector<Target>& targets) {
  constexpr std::size_t kMaxDifferences = 3;
  if (!resolved.explanation || resolved.explanation->differences.empty()) {
    return resolved.miss;
  }
  const Explanation& explanation = *resolved.explanation;
  for (const Target target : targets) {
    const Difference& first = explanation.differences.front();
    if (first.field == "target" && first.was == target.name()) {
      return resolved.miss;
    }
  }
  if (!explanation.nearest) {  // `never stored: uses __TIME__ (log.cuh)`
    const Difference& why = explanation.differences.front();
    return why.field + ": " + why.now;
  }
  std::vector<std::string> texts;
  for (const Difference& difference : explanation.differences) {
    const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
    texts.push_back(fmt::format("{} was {}, is {}", difference.field, shown(difference.was),
                                shown(difference.now)));
  }
  if (const std::size_t count = texts.size(); count > kMaxDifferences) {
    texts.resize(kMaxDifferences);
    texts.push_back(fmt::format("{} more", count - kMaxDifferences));
  }
  return fmt::format("{}: {}", resolved.miss, fmt::join(texts, "; "));
}

class FitsCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "fits",
        "BUNDLE|MANIFEST",
        "check that nothing has to be compiled here",
        "Exits with 0 if every module of the manifest is in the store for its targets, with its "
        "files as they are now, or if every entry of a bundle or an OCI image layout is trusted, "
        "whole and of this machine's NVRTC and CUDA headers, where it has any. Where there is a "
        "driver, every visible device must be served. Else it exits with 1 and says why for each "
        "module and target, as 'explain' does. Without --arch, targets in the manifest and a GPU "
        "the modules are checked for sm_100a, which it says. Compiles nothing, loads nothing, "
        "removes nothing and asks no remote store: a start-up probe.",
        {{"cukiln fits /app/kernels.json", "in an image, with its store"},
         {"cukiln fits kernels.ckb --trust fleet-1.key.pub --arch sm_100a",
          "whether a bundle has all of its modules for this target, before it is imported"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("BUNDLE|MANIFEST", subjects_);
    add_arch_option(app, arch_, "check");
    input_.add_to(app);
  }

  Exit run(Context& context) override {
    if (subjects_.size() != 1) {
      return context.usage("{}: cukiln fits BUNDLE|MANIFEST [--arch TARGET]...",
                           subjects_.empty() ? "a bundle or a manifest is missing"
                                             : "one bundle or manifest at a time");
    }
    const auto targets = parse_targets(arch_);
    if (!targets) {
      return context.fail(Exit::usage, targets.error());
    }
    if (auto devices = find_devices(context); !devices) {
      return context.fail(Exit::environment, devices.error());
    }
    auto loader = context.loader(true);
    if (!loader) {
      return context.fail(exit_of(loader.error()), loader.error());
    }
    LoaderServices services(**loader);
    Exit exit = Exit::failed;
    const auto checked = is_manifest(subjects_.front())
                             ? check_manifest(services, *targets, exit)
                             : check_bundle(context, services, *targets, exit);
    if (!checked) {
      return context.fail(exit, checked.error());
    }
    check_devices();
    if (fits_.empty()) {
      fits_.push_back({subjects_.front(), "-", {}, "there is nothing in it", false});
    }
    print(context);
    return all_fit() ? Exit::done : Exit::failed;
  }

 private:
  /// Leaves the list empty where there is no driver, or no device for it.
  Result<void> find_devices(Context& context) {
    const auto api = DriverApi::open(context.settings().loader.cuda_library);
    if (!api) {
      return api.error().code() == ErrorCode::not_found ? Result<void>() : api.error();
    }
    CUKILN_TRY(devices_, list_devices(**api));
    return {};
  }

  Result<void> check_manifest(LoaderServices& services, const std::vector<Target>& requested,
                              Exit& exit) {
    exit = Exit::usage;
    CUKILN_TRY(const Manifest manifest, load_manifest(subjects_.front(), requested));
    for (const ModuleSpec& module : manifest.modules()) {
      CUKILN_TRY(const auto targets, services.targets_of(module));
      if (devices_.empty() && module.targets.empty() && names_no_target(module.flags)) {
        assumed_ = targets.front();
      }
      for (const Target target : targets) {
        auto resolved = services.resolve(module, target);
        if (!resolved && resolved.error().code() != ErrorCode::not_found) {
          exit = exit_of(resolved.error());
          return std::move(resolved).error();
        }
        if (!resolved) {
          fits_.push_back({module.name,
                           target.name(),
                           {},
                           "the store is empty, and there is no "
                           "NVRTC",
                           false});
          continue;
        }
        fits_.push_back({resolved->name, resolved->target.name(), resolved->entry,
                         reason_of(*resolved, targets), resolved->trusts_recorded_toolkit});
      }
    }
    return {};
  }

  Result<void> check_bundle(const Context& context, LoaderServices& services,
                            const std::vector<Target>& targets, Exit& exit) {
    exit = Exit::usage;
    CUKILN_CHECK(input_.read_keys(context));
    std::set<std::string> names;
    auto read = input_.for_each(subjects_.front(), [&](const StoreEntry& entry) -> Result<void> {
      names.insert(entry.labels.name);
      const auto is_its = [&](Target target) { return target.name() == entry.labels.target; };
      if (targets.empty() || std::any_of(targets.begin(), targets.end(), is_its)) {
        fits_.push_back({entry.labels.name, entry.labels.target, entry.key,
                         services.toolchain_mismatch(entry), false});
      }
      return {};
    });
    if (!read) {
      exit = exit_of_bundle(read.error());
      return read;
    }
    for (const std::string& name : names) {
      for (const Target target : targets) {
        const auto is_there = [&](const Fit& fit) {
          return fit.module == name && fit.target == target.name();
        };
        if (std::none_of(fits_.begin(), fits_.end(), is_there)) {
          fits_.push_back({name, target.name(), {}, "not in the bundle", false});
        }
      }
    }
    return {};
  }

  /// Each device must run a target of each module.
  void check_devices() {
    std::map<std::string, std::set<std::string>> targets;
    for (const Fit& fit : fits_) {
      targets[fit.module].insert(fit.target);
    }
    for (const auto& [module, names] : targets) {
      for (const DeviceInfo& device : devices_) {
        const auto runs = [&](const std::string& name) {
          const auto target = Target::parse(name);
          return target && target->runs_on(device.capability);
        };
        if (std::none_of(names.begin(), names.end(), runs)) {
          fits_.push_back({module,
                           target_of(device).name(),
                           {},
                           fmt::format("device {} ({}) runs none of its targets: {}",
                                       device.ordinal, device.name, fmt::join(names, ", ")),
                           false});
        }
      }
    }
  }

  bool all_fit() const {
    return std::all_of(fits_.begin(), fits_.end(),
                       [](const Fit& fit) { return fit.reason.empty(); });
  }

  void print(const Context& context) const {
    if (context.json()) {
      Json modules = Json::array();
      for (const Fit& fit : fits_) {
        modules.push_back(
            Json{{"name", fit.module},
                 {"target", fit.target},
                 {"key", fit.key ? Json(fit.key->hex()) : Json()},
                 {"fits", fit.reason.empty()},
                 {"reason", fit.reason},
                 {"toolkit", fit.trusts_recorded_toolkit ? "as recorded" : "checked"}});
      }
      Json devices = Json::array();
      for (const DeviceInfo& device : devices_) {
        devices.push_back(Json{{"ordinal", device.ordinal},
                               {"name", device.name},
                               {"target", target_of(device).name()}});
      }
      context.print_json(Json{{"subject", subjects_.front()},
                              {"fits", all_fit()},
                              {"assumed_target", assumed_ ? Json(assumed_->name()) : Json()},
                              {"modules", std::move(modules)},
                              {"devices", std::move(devices)}});
      return;
    }
    Table table(
        {{"MODULE", Column::Align::left, true, 12}, {"TARGET"}, {"FITS"}, {"KEY"}, {"WHY NOT"}});
    std::size_t fitting = 0;
    for (const Fit& fit : fits_) {
      const bool does = fit.reason.empty();
      fitting += does ? 1 : 0;
      table.add(
          {{fit.module, Color::bold},
           fit.target,
           {does ? "yes" : "no", does ? Color::green : Color::red},
           {fit.key ? short_key(*fit.key) : "-", Color::yellow},
           does && fit.trusts_recorded_toolkit ? "(CUDA's headers as recorded)" : fit.reason});
    }
    context.print(
        table.text(context.out()) +
        fmt::format("\n{} of {} fit\n", fitting, counted(fits_.size(), "module", "modules")));
    if (assumed_) {
      context.print(fmt::format(
          "Checked for {}: neither --arch, the manifest nor a GPU here names a target.\n",
          assumed_->name()));
    }
  }

  std::vector<std::string> subjects_;
  std::vector<std::string> arch_;
  BundleInput input_;
  std::vector<DeviceInfo> devices_;
  std::optional<Target> assumed_;  ///< for modules for which nothing names one
  std::vector<Fit> fits_;
};

}  // namespace

std::unique_ptr<Command> make_fits() { return std::make_unique<FitsCommand>(); }

}  // namespace cukiln::cli
