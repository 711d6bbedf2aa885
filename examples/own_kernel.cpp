// SPDX-License-Identifier: Apache-2.0
// A kernel of one's own: a template in a file with a header, compiled for the GPU that is here,
// kept in the store, launched with checked argument types.

#include <cukiln/cukiln.hpp>

#include <cstdio>

#include "device.hpp"

#ifndef OWN_KERNEL_FOLDER  // the build names the folder that is beside this file
#define OWN_KERNEL_FOLDER "own_kernel"
#endif

namespace {

int fail(const cukiln::Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  return error.code() == cukiln::ErrorCode::compile_failed ? 1 : 3;
}

}  // namespace

int main() {
  Device device;
  if (!device.open()) {
    std::fprintf(stderr,
                 "no GPU here; `cukiln compile examples/own_kernel/saxpy.cu --name 'axpy<float>'` "
                 "does all but the launch\n");
    return 3;
  }
  auto settings = cukiln::Settings::load();
  if (!settings) return fail(settings.error());
  auto store = cukiln::Store::open(settings->store);
  if (!store) return fail(store.error());
  auto loader = cukiln::KernelLoader::create(*store, settings->loader);
  if (!loader) return fail(loader.error());

  cukiln::ModuleSpec spec;
  spec.name = "saxpy";
  spec.sources = {cukiln::SourceFile{OWN_KERNEL_FOLDER "/saxpy.cu"}};
  spec.names = {"axpy<float>"};             // a name expression: it instantiates the template
  spec.flags = {"-O3", "--use_fast_math"};  // nvcc's spellings are understood
  auto kernel = loader->get(spec, "axpy<float>");
  if (!kernel) return fail(kernel.error());
  auto axpy = cukiln::TypedKernel<float, const float*, float*, int>::create(*kernel);
  if (!axpy) return fail(axpy.error());

  const int n = 1000;
  float* const y = device.upload(std::vector<float>(n, 1.0f));
  const float* const x = device.upload(std::vector<float>(n, 2.0f));
  auto launched = axpy->launch(nullptr, {{4}, {256}}, 3.0f, x, y, n);
  if (!launched) return fail(launched.error());

  const std::vector<float> result = device.download(y, n);
  std::printf("3 * 2 + 1 = %g, %g (7 expected), %llu from the store\n", result.front(),
              result.back(), static_cast<unsigned long long>(loader->stats().hits));
  return result.front() == 7.0f && result.back() == 7.0f ? 0 : 1;
}
