// SPDX-License-Identifier: Apache-2.0
#include "core/loader/make_compiler.hpp"

#include <utility>

#include "core/compile/compiler_by_target.hpp"
#include "core/compile/nvrtc_compiler.hpp"
#include "core/loader/addons.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln {

NvrtcSearch nvrtc_search(const LoaderOptions& options) {
  NvrtcSearch search;
  search.nvrtc_library = options.nvrtc_library;
  search.include_path = options.include_path;
  search.site_packages = options.cuda_places.site_packages;
  search.virtual_env = options.cuda_places.virtual_env;
  search.conda_prefix = options.cuda_places.conda_prefix;
  search.cuda_home = options.cuda_places.cuda_home;
  search.home = options.cuda_places.home;
  search.library_path = options.cuda_places.library_path;
  search.default_roots = NvrtcSearch::built_in_roots();
  return search;
}

NvrtcCompilerOptions nvrtc_options(const LoaderOptions& options, TieredStore& tiers,
                                   StatCache& stats) {
  NvrtcCompilerOptions compiler;
  compiler.search = nvrtc_search(options);
  compiler.worker = options.worker;
  compiler.memory_bytes = options.compile_memory_bytes;
  compiler.budget =
      std::make_shared<CompileBudget>(CompileBudget::Limits{options.jobs, options.memory_bytes});
  compiler.stats = &stats;
  compiler.lock_folder = tiers.lock_folder();
  compiler.headers_folder = tiers.headers_folder();
  compiler.save_stats = [&tiers, &stats] {
    tiers.save_stat_records(stats.take_new());
    static_cast<void>(tiers.flush());  // on failure it is written with the next write
  };
  compiler.link = addons().link_tool;
  compiler.log = Logger(options.log);
  return compiler;
}

std::unique_ptr<Compiler> make_compiler(TieredStore& tiers, const NvrtcCompilerOptions& workers) {
  const auto make = [workers, daemon = tiers.daemon()](
                        std::optional<NvrtcInstall> install) -> std::unique_ptr<Compiler> {
    NvrtcCompilerOptions found = workers;
    found.install = std::move(install);
    auto here = std::make_unique<NvrtcCompiler>(std::move(found));
    if (daemon == nullptr) {
      return here;
    }
    return addons().compile_in_daemon(*daemon, std::move(here), workers.log);
  };
  return std::make_unique<CompilerByTarget>(workers.search, make, workers.log);
}

}  // namespace cukiln
