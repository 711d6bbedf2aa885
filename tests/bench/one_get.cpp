// SPDX-License-Identifier: Apache-2.0
// What `scripts/budget --paths` runs: a host that opens a loader and closes it, and with `get` asks
// for one kernel between.
//
//   cukiln_bench_one_get LIBCUDA SOURCE open|get

#include <cukiln/cukiln.hpp>

#include <string_view>
#include <utility>

#include "program.hpp"

int main(int argc, char** argv) {
  if (argc != 4) {
    return cukiln::bench::fail("usage: cukiln_bench_one_get LIBCUDA SOURCE open|get");
  }
  auto settings = cukiln::Settings::load();
  if (!settings) return cukiln::bench::fail(settings.error().to_string());
  settings->loader.cuda_library = argv[1];
  auto store = cukiln::Store::open(settings->store);
  if (!store) return cukiln::bench::fail(store.error().to_string());
  auto loader = cukiln::KernelLoader::create(*store, settings->loader);
  if (!loader) return cukiln::bench::fail(loader.error().to_string());
  if (std::string_view(argv[3]) == "get") {
    cukiln::ModuleSpec spec;
    spec.sources = {cukiln::SourceFile{argv[2]}};
    const auto kernel = loader->get(spec, "one");
    if (!kernel) return cukiln::bench::fail(kernel.error().to_string());
  }
  return 0;
}
