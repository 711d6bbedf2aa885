// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/module_options.hpp"
#include "cli/module_report.hpp"
#include "cli/progress.hpp"
#include "cli/shipped.hpp"
#include "cli/system_store.hpp"
#include "core/base/result.hpp"
#include "core/loader/module_request.hpp"

namespace cukiln::cli {

namespace {

/// Parses `0,1` into ordinals, `all` into none. Errors: invalid_argument.
Result<std::vector<int>> parse_devices(const std::string& text) {
  std::vector<int> devices;
  std::string_view rest = text == "all" ? std::string_view() : std::string_view(text);
  while (!rest.empty()) {
    int ordinal = -1;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), ordinal);
    rest.remove_prefix(error == std::errc{} ? static_cast<std::size_t>(end - rest.data()) : 0);
    if (error != std::errc{} || ordinal < 0 || (!rest.empty() && rest[0] != ',') || rest == ",") {
      return make_error(ErrorCode::invalid_argument,
                        "invalid --devices \"{}\"; expected all, or ordinals such as 0,1", text);
    }
    devices.push_back(ordinal);
    rest.remove_prefix(rest.empty() ? 0 : 1);
  }
  return devices;
}

class PreloadCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "preload",
        "[MANIFEST]",
        "make every kernel of a manifest ready",
        "Looks up every module of the manifest in the store, compiles the missing ones in "
        "parallel, and loads all of them on the GPUs. Without a MANIFEST it takes the kernels that "
        "come with cukiln. With --no-load it only fills the store, without a GPU or a driver.",
        {{"cukiln preload --no-load --arch sm_100a", "fills the store on a machine without a GPU"},
         {"cukiln preload kernels.json", "loads a manifest of your own on every GPU"},
         {"cukiln preload --offline --no-load", "lists what is not in the store"},
         {"cukiln preload kernels.json --arch sm_100a --system-store /var/cache/cukiln",
          "in the build of an image: a store that every user of the image reads"},
         {"cukiln preload kernels.json --devices 0,1 --jobs 4",
          "loads on two GPUs, with four concurrent compiles"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("MANIFEST", manifest_);
    app.add_option("--manifest", same_manifest_, "the same as MANIFEST, as in 'export'")
        ->type_name("FILE");
    add_arch_option(app, arch_);
    add_std_shims_option(app, no_std_shims_);
    app.add_option("-j,--jobs", jobs_, "concurrent compiles (default: the setting jobs)")
        ->type_name("N");
    app.add_flag("--no-load", no_load_, "only fill the store");
    app.add_option("--system-store", system_store_,
                   "add the entries to the system store in this folder, which is made if it is "
                   "missing, unless a module fails; implies --no-load")
        ->type_name("DIR");
    app.add_flag("--offline", offline_,
                 "never compile; report what is not in the store as missing");
    app.add_option("--devices", devices_,
                   "load on these devices: all (the default) or ordinals, such as 0,1")
        ->type_name("LIST");
  }

  Exit run(Context& context) override {
    no_load_ = no_load_ || !system_store_.empty();
    if (const auto supported = system_store_.empty() ? Result<void>() : require_system_stores();
        !supported) {
      return context.fail(Exit::usage, supported.error());
    }
    auto manifest = read_manifest();
    if (!manifest) {
      return context.fail(Exit::usage, manifest.error());
    }
    if (manifest->modules().empty()) {
      context.messages().warn("the manifest has no module for these targets");
    }
    auto options = preload_options();
    const auto jobs = parse_jobs(jobs_);
    if (!options || !jobs) {
      return context.fail(Exit::usage, !options ? options.error() : jobs.error());
    }
    if (*jobs != 0) {
      context.settings().loader.jobs = *jobs;
    }
    context.settings().loader.offline = context.settings().loader.offline || offline_;
    auto loader = context.loader();
    if (!loader) {
      return context.fail(exit_of(loader.error()), loader.error());
    }
    auto report = preload(context, **loader, *manifest, *options);
    if (!report) {
      Error error = report.error();
      const Exit exit = exit_of(error);
      if (exit == Exit::environment && !no_load_) {
        error = Error(error.code(), error.message() + "; --no-load fills the store without a GPU",
                      error.log());
      }
      return context.fail(exit, error);
    }
    if (system_store_.empty()) {
      return print_report(context, *report, no_load_, Json{{"system_store", nullptr}});
    }
    return fill_system_store(context, *report);
  }

 private:
  /// Writes nothing if a module failed: an image that lacks kernels should not be built.
  Exit fill_system_store(Context& context, const PreloadReport& report) const {
    if (report.failed != 0) {
      return print_report(context, report, false, Json{{"system_store", nullptr}});
    }
    const auto written = write_system_store(context, report);
    if (!written) {
      return context.fail(Exit::store, written.error());
    }
    const Exit exit = print_report(context, report, false,
                                   Json{{"system_store",
                                         {{"directory", written->directory},
                                          {"entries", written->entries},
                                          {"size_bytes", written->bytes}}}});
    if (!context.json()) {
      context.print(fmt::format("System store {}: {}, {}\n", written->directory,
                                counted(written->entries, "entry", "entries"),
                                human_bytes(written->bytes)));
    }
    return exit;
  }

  Result<SystemStoreSummary> write_system_store(Context& context,
                                                const PreloadReport& report) const {
    std::vector<CacheKey> keys;
    for (const ModuleReport& module : report.modules) {
      if (module.not_stored && module.not_stored->code() == ErrorCode::incompatible) {
        context.messages().warn(fmt::format("{} for {} is not in the system store: {}", module.name,
                                            module.target.name(), module.not_stored->message()));
        continue;
      }
      keys.push_back(module.key);
    }
    return add_to_system_store(context, system_store_, keys);
  }

  Result<Manifest> read_manifest() const {
    CUKILN_TRY(const std::vector<Target> targets, parse_targets(arch_));
    if (!manifest_.empty() && !same_manifest_.empty()) {
      return make_error(ErrorCode::invalid_argument,
                        "two manifests, \"{}\" and --manifest \"{}\": name one at a time",
                        manifest_, same_manifest_);
    }
    const std::string& path = manifest_.empty() ? same_manifest_ : manifest_;
    CUKILN_TRY(Manifest manifest, path.empty() ? shipped_manifest() : load_manifest(path, targets));
    if (path.empty() && !targets.empty()) {
      manifest = std::move(manifest).for_targets(targets);
    }
    return Manifest(with_std_shims_option(std::move(manifest).modules(), no_std_shims_));
  }

  Result<PreloadOptions> preload_options() const {
    PreloadOptions options;
    CUKILN_TRY(options.devices, parse_devices(devices_));
    options.load = !no_load_;
    options.keep_going = true;
    return options;
  }

  static Result<PreloadReport> preload(Context& context, KernelLoader& loader,
                                       const Manifest& manifest, const PreloadOptions& options) {
    ProgressBar bar(context.messages(), manifest.modules().size());
    return loader.preload(manifest, options,
                          [&](std::size_t done, std::size_t total, const ModuleReport& last) {
                            bar.update(done, total, last);
                          });
  }

  std::string manifest_;
  std::string same_manifest_;
  std::vector<std::string> arch_;
  std::string jobs_;
  std::string devices_ = "all";
  std::string system_store_;
  bool no_load_ = false;
  bool offline_ = false;
  bool no_std_shims_ = false;
};

}  // namespace

std::unique_ptr<Command> make_preload() { return std::make_unique<PreloadCommand>(); }

}  // namespace cukiln::cli
