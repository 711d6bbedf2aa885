// SPDX-License-Identifier: Apache-2.0
// One start of a host, in a process of its own: opens the store, makes a loader, preloads a
// manifest.
//
//   cukiln_bench_start STORE MANIFEST [--target sm_100a] [--jobs N] [--load]
//
// MANIFEST `shipped`: the kernels inside the library. Prints microseconds of each step as JSON.
// With
// --load the device is initialised before the clock starts, as a host of GPUs would have done.

#include <cukiln/cukiln.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

#include <dlfcn.h>

#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using Clock = std::chrono::steady_clock;

double us_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

/// Of this process: what the work costs when others have the cores.
double cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

bool initialise_device() {
  void* const cuda = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == nullptr) return false;
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(cuda, "cuInit"));
  const auto retain =
      reinterpret_cast<int (*)(void**, int)>(::dlsym(cuda, "cuDevicePrimaryCtxRetain"));
  void* context = nullptr;
  return init != nullptr && retain != nullptr && init(0) == 0 && retain(&context, 0) == 0;
}

int fail(const cukiln::Error& error) {
  std::fprintf(stderr, "%s: %s\n%s", name_of(error.code()), error.message().c_str(),
               error.log().c_str());
  return error.code() == cukiln::ErrorCode::compile_failed ? 1 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: cukiln_bench_start STORE MANIFEST [--target T] [--jobs N] [--load]\n");
    return 2;
  }
  const char* target_name = nullptr;
  unsigned jobs = 0;
  cukiln::PreloadOptions preload;
  preload.load = false;
  for (int i = 3; i < argc; ++i) {
    if (std::strcmp(argv[i], "--load") == 0) {
      preload.load = true;
    } else if (std::strcmp(argv[i], "--target") == 0 && i + 1 < argc) {
      target_name = argv[++i];
    } else if (std::strcmp(argv[i], "--jobs") == 0 && i + 1 < argc) {
      jobs = static_cast<unsigned>(std::atoi(argv[++i]));
    }
  }

  if (preload.load && !initialise_device()) {
    std::fprintf(stderr, "no GPU here: nothing can be loaded\n");
    return 3;
  }
  const double cpu_begin = cpu_us();
  const auto begin = Clock::now();
  auto settings = cukiln::Settings::load();
  if (!settings) return fail(settings.error());
  settings->store.directory = argv[1];
  settings->store.system_directory.clear();
  settings->loader.jobs = jobs;
  auto store = cukiln::Store::open(settings->store);
  if (!store) return fail(store.error());
  const auto opened = Clock::now();
  const double cpu_opened = cpu_us();
  auto loader = cukiln::KernelLoader::create(*store, settings->loader);
  if (!loader) return fail(loader.error());
  auto manifest = std::strcmp(argv[2], "shipped") == 0 ? cukiln::nvfp4::manifest()
                                                       : cukiln::Manifest::load(argv[2]);
  if (!manifest) return fail(manifest.error());
  if (target_name != nullptr) {
    auto target = cukiln::Target::parse(target_name);
    if (!target) return fail(target.error());
    manifest = std::move(*manifest).for_targets({*target});
  }
  const auto made = Clock::now();
  auto report = loader->preload(*manifest, preload);
  const auto ready = Clock::now();
  const double cpu_ready = cpu_us();
  if (!report) return fail(report.error());

  double driver_ms = 0;
  for (const cukiln::ModuleReport& module : report->modules) driver_ms += module.load_time.count();
  std::printf(
      "{\"open_us\": %.1f, \"create_us\": %.1f, \"preload_us\": %.1f, \"total_us\": %.1f, "
      "\"cpu_us\": %.1f, \"open_cpu_us\": %.1f, \"driver_us\": %.1f, \"modules\": %zu, \"hits\": "
      "%zu, \"compiled\": %zu}\n",
      us_between(begin, opened), us_between(opened, made), us_between(made, ready),
      us_between(begin, ready), cpu_ready - cpu_begin, cpu_opened - cpu_begin, driver_ms * 1e3,
      report->modules.size(), report->hits, report->compiled);
  return 0;
}
