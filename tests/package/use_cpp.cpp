// SPDX-License-Identifier: Apache-2.0
// Opens a store in the folder given and compiles a kernel into it, as a host without a GPU would.
#include <cukiln/cukiln.hpp>

#include <cstdio>
#include <string>

namespace {

int fail(const cukiln::Error& error) {
  std::fprintf(stderr, "%s\n%s\n", error.message().c_str(), error.log().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: use_cpp STORE\n");
    return 2;
  }
  const std::string headers = std::to_string(CUKILN_VERSION_MAJOR) + "." +
                              std::to_string(CUKILN_VERSION_MINOR) + "." +
                              std::to_string(CUKILN_VERSION_PATCH);
  if (headers != cukiln::version()) {
    std::fprintf(stderr, "the library is %s; its headers are %s\n", cukiln::version(),
                 headers.c_str());
    return 1;
  }
  cukiln::StoreOptions store_options;
  store_options.directory = argv[1];
  auto store = cukiln::Store::open(store_options);
  if (!store) return fail(store.error());

  cukiln::LoaderOptions options;
#ifdef COMPILE_WORKER
  options.worker = COMPILE_WORKER;
#endif
  auto loader = cukiln::KernelLoader::create(*store, options);
  if (!loader) return fail(loader.error());

  cukiln::ModuleSpec spec;
  spec.name = "nothing";
  spec.sources = {cukiln::SourceText{"nothing.cu", "extern \"C\" __global__ void nothing() {}"}};
  spec.targets = {cukiln::Target{100, 'a'}};
  const auto reports = loader->compile(spec);
  if (!reports) return fail(reports.error());
  for (const cukiln::ModuleReport& report : *reports) {
    if (report.error) return fail(*report.error);
    std::printf("%s %s %s\n", report.name.c_str(), cukiln::name_of(report.outcome),
                report.key.hex().c_str());
  }
  return 0;
}
