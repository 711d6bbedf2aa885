// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "cli/command.hpp"
#include "cli/module_options.hpp"
#include "cli/module_report.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

bool is_folder(const std::string& path) {
  struct stat status = {};
  return path.back() == '/' || (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode));
}

class CompileCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {"compile",
            "FILE.cu...",
            "compile files through the cache",
            "Compiles each file for each target, or finds the result in the store: equal sources, "
            "flags, headers and compilers are compiled once. Prints a table of modules, with their "
            "kernels and the resources of these.",
            {{"cukiln compile amax.cu --arch sm_100a", "one file for one target"},
             {"cukiln compile *.cu -I include -DTILE=64 --arch sm_90a --arch sm_100a",
              "several files, each for two targets"},
             {"cukiln compile scale.cu --name 'scale<float, 4>'", "an instance of a template"},
             {"cukiln compile k.cu -O3 -gencode=arch=compute_100a,code=sm_100a",
              "with the flags of an nvcc command line"},
             {"cukiln compile amax.cu -o amax.cubin", "also writes the cubin to a file"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("FILE.cu", sources_);
    module_.add_to(app);
    app.add_option("-o,--output", output_,
                   "write the cubin to this file; to this folder if there are several modules")
        ->type_name("OUT");
    app.add_option("-j,--jobs", jobs_, "concurrent compiles (default: the setting jobs)")
        ->type_name("N");
    app.add_flag("--offline", offline_,
                 "never compile; report what is not in the store as missing");
  }

  Exit run(Context& context) override {
    if (sources_.empty()) {
      return context.usage("a source is missing: cukiln compile FILE.cu... [options]");
    }
    if (const auto at = std::find_if(sources_.begin(), sources_.end(), is_manifest);
        at != sources_.end()) {
      return context.usage(
          "{0} is not a .cu file; to compile a manifest: cukiln preload {0} --no-load", *at);
    }
    auto modules = module_.modules(sources_);
    if (!modules) {
      return context.fail(Exit::usage, modules.error());
    }
    if (auto there =
            output_.empty() ? Result<void>() : check_output(output_, /*may_be_folder=*/true);
        !there) {
      return context.fail(exit_of_output(there.error()), there.error());
    }
    std::size_t count = 0;  // a lower bound: a module without a target gets one per kind of GPU
    for (const ModuleSpec& module : *modules) {
      count += std::max<std::size_t>(1, module.targets.size());
    }
    if (auto one = check_one_file(count); !one) {
      return context.fail(Exit::usage, one.error());
    }
    const auto jobs = parse_jobs(jobs_);
    if (!jobs) {
      return context.fail(Exit::usage, jobs.error());
    }
    LoaderOptions& options = context.settings().loader;
    options.jobs = *jobs != 0 ? *jobs : options.jobs;
    options.offline = options.offline || offline_;
    auto loader = context.loader();
    if (!loader) {
      return context.fail(exit_of(loader.error()), loader.error());
    }
    auto report = compile(context, **loader, Manifest(*std::move(modules)));
    if (!report) {
      return context.fail(exit_of(report.error()), report.error());
    }
    if (!output_.empty()) {
      if (auto written = write_cubins(**loader, *report); !written) {
        const bool usage = written.error().code() == ErrorCode::invalid_argument;
        return context.fail(usage ? Exit::usage : Exit::failed, written.error());
      }
    }
    return print_report(context, *report, output_.empty());
  }

 private:
  static Result<PreloadReport> compile(Context& context, KernelLoader& loader,
                                       const Manifest& manifest) {
    PreloadOptions options;
    options.load = false;
    options.keep_going = true;
    ProgressBar bar(context.messages(), manifest.modules().size());
    return loader.preload(manifest, options,
                          [&](std::size_t done, std::size_t total, const ModuleReport& last) {
                            bar.update(done, total, last);
                          });
  }

  Result<void> check_one_file(std::size_t modules) const {
    if (!output_.empty() && !is_folder(output_) && modules > 1) {
      return make_error(ErrorCode::invalid_argument,
                        "-o {} is one file for {} modules; name an existing folder", output_,
                        modules);
    }
    return {};
  }

  Result<void> write_cubins(KernelLoader& loader, const PreloadReport& report) const {
    const bool folder = is_folder(output_);
    CUKILN_CHECK(check_one_file(report.modules.size()));
    const auto name_of = [](const ModuleReport& module) {
      return module.name + "." + module.target.name() + ".cubin";
    };
    std::set<std::string> names;
    for (const ModuleReport& module : report.modules) {
      if (!names.insert(name_of(module)).second) {
        return make_error(
            ErrorCode::invalid_argument,
            "-o {}: two modules would be written to {}; compile them separately, each "
            "with its own -o",
            output_, name_of(module));
      }
    }
    for (const ModuleReport& module : report.modules) {
      if (module.error) {
        continue;
      }
      CUKILN_TRY(const std::string cubin, loader.cubin(module.key));
      const std::string name = name_of(module);
      CUKILN_CHECK(write_output(folder ? join_path(output_, name) : output_, cubin));
    }
    return {};
  }

  std::vector<std::string> sources_;
  ModuleOptions module_;
  std::string output_;
  std::string jobs_;
  bool offline_ = false;
};

}  // namespace

std::unique_ptr<Command> make_compile() { return std::make_unique<CompileCommand>(); }

}  // namespace cukiln::cli
