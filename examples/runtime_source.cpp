// SPDX-License-Identifier: Apache-2.0
// A host that writes its kernels at run time, as array libraries and query engines do: the source
// and its header are texts, the kernel is instantiated for a C++ type, and a variable of the device
// is set. Each event is printed, as an engine would log it.

#include <cukiln/cukiln.hpp>
#include <cukiln/instantiate.hpp>

#include <cstdio>
#include <string>

#include "device.hpp"

namespace {

int fail(const cukiln::Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  return error.code() == cukiln::ErrorCode::compile_failed ? 1 : 3;
}

void print(const cukiln::Event& event) {
  std::printf("%s %s %s%s, %.1f ms\n", cukiln::name_of(event.kind), event.module.c_str(),
              event.reason.c_str(), event.failed ? " (failed)" : "", event.elapsed.count());
}

/// A kernel that applies an expression, which the user gave, to each element.
cukiln::ModuleSpec elementwise(const std::string& expression) {
  cukiln::ModuleSpec spec;
  spec.name = "elementwise";
  spec.sources = {cukiln::SourceText{"elementwise.cu", R"(
#include "expression.h"
__constant__ float scale;
template <class T>
__global__ void apply(T* values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = scale * evaluate(values[i]);
})"}};
  spec.named_headers = {cukiln::SourceText{
      "expression.h",
      "template <class T> __device__ T evaluate(T x) { return " + expression + "; }"}};
  spec.names = {cukiln::instantiate<float>("apply"), "scale"};
  return spec;
}

}  // namespace

int main() {
  Device device;
  if (!device.open()) {
    std::fprintf(stderr, "no GPU here: this example launches what it compiles\n");
    return 3;
  }
  auto settings = cukiln::Settings::load();
  if (!settings) return fail(settings.error());
  settings->loader.events = print;
  auto store = cukiln::Store::open(settings->store);
  if (!store) return fail(store.error());
  auto loader = cukiln::KernelLoader::create(*store, settings->loader);
  if (!loader) return fail(loader.error());

  const cukiln::ModuleSpec spec = elementwise("x * x + 1");
  auto module = loader->module(spec);
  if (!module) return fail(module.error());
  auto scale = module->global("scale");
  if (!scale) return fail(scale.error());
  if (scale->size_bytes != sizeof(float) || !device.write(scale->address, 10.0f)) return 1;

  auto kernel = loader->get(spec, cukiln::instantiate<float>("apply"));
  if (!kernel) return fail(kernel.error());
  auto apply = cukiln::TypedKernel<float*, int>::create(*kernel);
  if (!apply) return fail(apply.error());
  const int n = 1000;
  float* const values = device.upload(std::vector<float>(n, 3.0f));
  auto launched = apply->launch(nullptr, {{4}, {256}}, values, n);
  if (!launched) return fail(launched.error());

  const float result = device.download(values, n).back();
  std::printf("10 * (3 * 3 + 1) = %g (100 expected)\n", result);
  return result == 100.0f ? 0 : 1;
}
