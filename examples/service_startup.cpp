// SPDX-License-Identifier: Apache-2.0
// How a service starts: a manifest of its own, progress in its log, readiness only when every
// kernel is loaded, and exit codes that tell a broken kernel from a broken machine.
//
//     service_startup [MANIFEST]        the shipped kernels without an argument
//
// 0 ready; 1 a kernel does not compile; 2 usage or a wrong manifest; 3 the machine lacks something.

#include <cukiln/cukiln.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

#include <cstdio>

namespace {

int exit_code(cukiln::ErrorCode code) {
  switch (code) {
    case cukiln::ErrorCode::compile_failed: return 1;
    case cukiln::ErrorCode::invalid_argument: return 2;
    default: return 3;
  }
}

int fail(const cukiln::Error& error) {
  std::fprintf(stderr, "not ready: %s\n", error.to_string().c_str());
  return exit_code(error.code());
}

void show(std::size_t done, std::size_t total, const cukiln::ModuleReport& last) {
  std::fprintf(stderr, "[%zu/%zu] %s %s: %s (%s), %.1f ms\n", done, total, last.name.c_str(),
               last.target.name().c_str(), name_of(last.outcome), last.reason.c_str(),
               last.elapsed.count());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fprintf(stderr, "usage: service_startup [MANIFEST]\n");
    return 2;
  }
  auto settings = cukiln::Settings::load();
  if (!settings) return fail(settings.error());
  const cukiln::LogLevel level = settings->log_level;
  settings->loader.log = [level](cukiln::LogLevel at, std::string_view message) {
    if (at <= level)
      std::fprintf(stderr, "%.*s\n", static_cast<int>(message.size()), message.data());
  };
  settings->store.log = settings->loader.log;
  for (const std::string& warning : settings->warnings) {  // a misspelt variable, a refused value
    settings->loader.log(cukiln::LogLevel::warn, warning);
  }

  auto store = cukiln::Store::open(settings->store);
  if (!store) return fail(store.error());
  if (!store->bypass_reason().empty()) {  // worth an alarm: every start compiles again
    std::fprintf(stderr, "no store on disk: %s\n", store->bypass_reason().c_str());
  }
  auto loader = cukiln::KernelLoader::create(*store, settings->loader);
  if (!loader) return fail(loader.error());

  auto manifest = argc == 2 ? cukiln::Manifest::load(argv[1]) : cukiln::nvfp4::manifest();
  if (!manifest) {
    fail(manifest.error());
    return 2;
  }
  const auto warm = loader->preload(*manifest, {}, show);
  if (!warm) return fail(warm.error());
  loader->seal();

  const cukiln::Stats stats = loader->stats();
  std::printf(
      "ready: %zu kernel%s in %.1f ms, %zu modules from the store, %zu compiled; the store has "
      "%llu entries\n",
      loader->kernels().size(), loader->kernels().size() == 1 ? "" : "s", warm->elapsed.count(),
      warm->hits, warm->compiled, static_cast<unsigned long long>(stats.entries));
  return 0;
}
