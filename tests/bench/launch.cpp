// SPDX-License-Identifier: Apache-2.0
// A launch through cukiln beside the driver's own, in turns, of a kernel that does nothing.
//
//   cukiln_bench_launch STORE
//
// Microseconds of the calling thread for one launch, the median of batches. Needs a GPU: exits with
// 3 where there is none.

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "program.hpp"

#include <cukiln/cukiln.h>
#include <cukiln/cukiln.hpp>

using cukiln::bench::fail;
using cukiln::bench::median;
using cukiln::bench::now_us;

namespace {

constexpr int kBatches = 61;
constexpr int kBatch = 400;  // below the depth at which the driver makes a launch wait

/// What a host uses of libcuda here.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*synchronize)() = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                cukiln::Stream, void* const*, void**) = nullptr;

  bool open() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return false;
    const auto resolve = [library](auto*& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    int device = 0;
    void* context = nullptr;
    return resolve(init, "cuInit") && resolve(device_get, "cuDeviceGet") &&
           resolve(retain, "cuDevicePrimaryCtxRetain") && resolve(set_current, "cuCtxSetCurrent") &&
           resolve(synchronize, "cuCtxSynchronize") && resolve(launch, "cuLaunchKernel") &&
           init(0) == 0 && device_get(&device, 0) == 0 && retain(&context, device) == 0 &&
           set_current(context) == 0;
  }
};

struct Contender {
  const char* name;
  std::function<bool()> batch;
  std::vector<double> times;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage: cukiln_bench_launch STORE");
  Driver driver;
  if (!driver.open()) return fail("no GPU here: launches are not measured");
  auto settings = cukiln::Settings::load();
  if (!settings) return fail(settings.error().message());
  settings->store.directory = argv[1];
  auto store = cukiln::Store::open(settings->store);
  if (!store) return fail(store.error().message());
  auto loader = cukiln::KernelLoader::create(*store, settings->loader);
  if (!loader) return fail(loader.error().message());
  cukiln::ModuleSpec spec;
  spec.name = "nothing";
  spec.sources = {cukiln::SourceText{
      "nothing.cu",
      "extern \"C\" __global__ void nothing(float* x, const float* y, int n, float a) {}"}};
  auto kernel = loader->get(spec);
  if (!kernel) return fail(kernel.error().message());
  auto typed = cukiln::TypedKernel<float*, const float*, int, float>::create(*kernel);
  if (!typed) return fail(typed.error().message());

  float* x = nullptr;
  const float* y = nullptr;
  int n = 1;
  float a = 2;
  void* arguments[] = {&x, &y, &n, &a};
  void* const native = kernel->native();
  cukiln_kernel c_kernel = nullptr;
  static_assert(sizeof c_kernel == sizeof *kernel);
  std::copy_n(reinterpret_cast<const char*>(&*kernel), sizeof c_kernel,
              reinterpret_cast<char*>(&c_kernel));
  cukiln_launch_config c_config{};
  c_config.struct_bytes = sizeof c_config;

  Contender contenders[] = {
      {"cuLaunchKernel",
       [&] {
         bool ok = true;
         for (int i = 0; i < kBatch; ++i) {
           ok &= driver.launch(native, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr) == 0;
         }
         return ok;
       },
       {}},
      {"Kernel::launch",
       [&] {
         bool ok = true;
         for (int i = 0; i < kBatch; ++i) {
           ok &= static_cast<bool>(kernel->launch(nullptr, {{1}, {32}}, arguments));
         }
         return ok;
       },
       {}},
      {"TypedKernel::launch",
       [&] {
         bool ok = true;
         for (int i = 0; i < kBatch; ++i) {
           ok &= static_cast<bool>(typed->launch(nullptr, {{1}, {32}}, x, y, n, a));
         }
         return ok;
       },
       {}},
      {"cukiln_kernel_launch",
       [&] {
         bool ok = true;
         c_config.block[0] = 32;
         for (int i = 0; i < kBatch; ++i) {
           ok &= cukiln_kernel_launch(c_kernel, nullptr, &c_config, arguments) == CUKILN_OK;
         }
         return ok;
       },
       {}},
  };
  for (int batch = -4; batch < kBatches; ++batch) {
    for (Contender& contender : contenders) {
      driver.synchronize();
      const double start = now_us();
      if (!contender.batch()) return fail(std::string(contender.name) + " failed");
      const double took = now_us() - start;
      if (batch >= 0) contender.times.push_back(took / kBatch);
    }
  }
  driver.synchronize();
  const char* separator = "{";
  for (const Contender& contender : contenders) {
    std::printf("%s\"%s\": %.4f", separator, contender.name, median(contender.times));
    separator = ", ";
  }
  std::printf("}\n");
  return 0;
}
