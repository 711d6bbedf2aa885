// SPDX-License-Identifier: Apache-2.0
// A host that loads the library by a name, goes to another folder, and compiles one kernel by the
// settings of its environment. It says what it saw, one `name value` a line.
//
// usage: bindings_trust_host LIBRARY FOLDER SOURCE [FLAG...]
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <cukiln/cukiln.h>

namespace {

template <class Function>
Function symbol(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function>(found);
}
#define CUKILN_SYMBOL(name) const auto name = symbol<decltype(&::name)>(library, #name)

void log(void*, cukiln_log_level level, const char* message) {
  if (level <= CUKILN_LOG_WARN) {
    std::fprintf(stderr, "%s\n", message);
  }
}

}  // namespace

int main(int argc, char** argv) {
  void* const library = argc > 3 ? dlopen(argv[1], RTLD_NOW) : nullptr;
  if (library == nullptr || chdir(argv[2]) != 0) {
    std::fprintf(stderr, "%s\n", argc > 3 ? dlerror() : "usage: LIBRARY FOLDER SOURCE [FLAG...]");
    return 1;
  }
  CUKILN_SYMBOL(cukiln_loader_create);
  CUKILN_SYMBOL(cukiln_loader_preload_modules);
  CUKILN_SYMBOL(cukiln_loader_stats);
  CUKILN_SYMBOL(cukiln_loader_destroy);
  CUKILN_SYMBOL(cukiln_last_error);

  cukiln_options options{};
  options.struct_bytes = sizeof options;
  options.from_environment = 1;
  options.log = log;
  cukiln_loader* loader = nullptr;
  cukiln_source source{};
  source.path = argv[3];
  const char* const target = "sm_90a";
  cukiln_module module{};
  module.struct_bytes = sizeof module;
  module.sources = &source;
  module.source_count = 1;
  module.flags = argv + 4;
  module.flag_count = static_cast<size_t>(argc - 4);
  module.targets = &target;
  module.target_count = 1;
  const cukiln_module* const modules[] = {&module};
  cukiln_preload_options preload{};
  preload.struct_bytes = sizeof preload;
  preload.no_load = 1;
  cukiln_stats stats{};
  stats.struct_bytes = sizeof stats;
  if (cukiln_loader_create(&options, &loader) != CUKILN_OK ||
      cukiln_loader_preload_modules(loader, modules, 1, &preload, nullptr) != CUKILN_OK ||
      cukiln_loader_stats(loader, &stats) != CUKILN_OK) {
    std::fprintf(stderr, "%s\n", cukiln_last_error());
    cukiln_loader_destroy(loader);
    return 1;
  }
  std::printf("hits %llu\ncompiles %llu\nmisses_revoked %llu\n",
              static_cast<unsigned long long>(stats.hits),
              static_cast<unsigned long long>(stats.compiles),
              static_cast<unsigned long long>(stats.misses_revoked));
  cukiln_loader_destroy(loader);
  return 0;
}
