// SPDX-License-Identifier: Apache-2.0
// What NVRTC alone takes for the shipped kernels: this process, one after the other, no cache, no
// worker, no observing, and no driver: where NVRTC can open libcuda, the first compile initialises
// it (200 ms), and the later ones may come from NVRTC's own cache on disk. The floor of a cold
// start.
//
//   cukiln_bench_raw_compile KERNELS_SRC TARGET [ROUNDS]
//
// Prints {"modules": {name: microseconds, …}, "sum_us": …, "open_us": …}; the fastest round of
// each.

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/file.hpp"
#include "core/compile/nvrtc_api.hpp"
#include "core/compile/nvrtc_library.hpp"
#include "core/loader/make_compiler.hpp"
#include "program.hpp"

#include <cukiln/cukiln.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

using namespace cukiln;  // NOLINT: a program
using cukiln::bench::fail;
using cukiln::bench::now_us;

// The executable's, exported: NVRTC asks it first.
extern "C" __attribute__((visibility("default"))) void* dlopen(const char* path, int flags) {
  static const auto real =
      reinterpret_cast<void* (*)(const char*, int)>(::dlsym(RTLD_NEXT, "dlopen"));
  return path != nullptr && std::strstr(path, "libcuda") != nullptr ? nullptr : real(path, flags);
}

int main(int argc, char** argv) {
  if (argc < 3) return fail("usage: cukiln_bench_raw_compile KERNELS_SRC TARGET [ROUNDS]");
  const std::string root = argv[1];
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 1;

  auto settings = Settings::load();
  if (!settings) return fail(settings.error().message());
  const auto install = find_nvrtc(nvrtc_search(settings->loader));
  if (!install) return fail(install.error().message());
  const double open_start = now_us();
  NvrtcApi api;
  if (const std::string error = api.open(install->library, install->builtins); !error.empty()) {
    return fail(error);
  }
  const double open_us = now_us() - open_start;

  const Manifest shipped = nvfp4::manifest();
  std::vector<double> best(shipped.modules().size(), 1e12);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < shipped.modules().size(); ++i) {
      const ModuleSpec& module = shipped.modules()[i];
      const std::string& source = name_of(module.sources.front());  // kernels_src/family/name.cu
      const std::string path = root + source.substr(source.find('/'));
      const auto file = read_file(path);
      if (!file) return fail(file.error().message());
      wire::Compile job;
      job.unit_path = path;
      job.unit_text = file->bytes.view();
      job.arguments = {std::string("--gpu-architecture=") + argv[2], "--std=c++17",
                       "--ptxas-options=-v", "--include-path=" + folder_of(path)};
      for (const std::string& folder : install->headers) {
        job.arguments.push_back("--include-path=" + folder);
      }
      for (const std::string& flag : module.flags) job.arguments.push_back(flag);
      job.name_expressions = module.names;
      const double start = now_us();
      const wire::Compiled compiled = compile_with(api, job, OutputKind::cubin);
      const double us = now_us() - start;
      if (compiled.status != wire::CompileStatus::ok) return fail(compiled.log);
      best[i] = std::min(best[i], us);
    }
  }

  double sum = 0;
  std::printf("{\"modules\": {");
  for (std::size_t i = 0; i < best.size(); ++i) {
    sum += best[i];
    std::printf("%s\"%s\": %.1f", i == 0 ? "" : ", ", shipped.modules()[i].name.c_str(), best[i]);
  }
  std::printf("}, \"sum_us\": %.1f, \"open_us\": %.1f}\n", sum, open_us);
  std::fflush(stdout);
  std::_Exit(0);  // NVRTC's destructors are known to crash
}
