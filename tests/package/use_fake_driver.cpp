// SPDX-License-Identifier: Apache-2.0
// A test of a host: compiles and launches a kernel on a machine without a GPU, and reads what the
// driver got.
#include <cukiln/fake_cuda.h>
#include <cukiln/cukiln.hpp>

#include <cstdio>
#include <string_view>

namespace {

int fail(const cukiln::Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: use_fake_driver STORE\n");
    return 2;
  }
  fake_cuda_set_current(0);
  fake_cuda_read_parameters(1);
  cukiln::StoreOptions store_options;
  store_options.directory = argv[1];
  auto store = cukiln::Store::open(store_options);
  if (!store) return fail(store.error());
  cukiln::LoaderOptions options;
  options.cuda_library = FAKE_DRIVER;
#ifdef COMPILE_WORKER
  options.worker = COMPILE_WORKER;
#endif
  auto loader = cukiln::KernelLoader::create(*store, options);
  if (!loader) return fail(loader.error());

  cukiln::ModuleSpec spec;
  spec.sources = {cukiln::SourceText{
      "scale.cu",
      "extern \"C\" __global__ void scale(float* x, float f) { x[threadIdx.x] *= f; }"}};
  auto kernel = loader->get(spec, "scale");
  if (!kernel) return fail(kernel.error());
  auto scale = cukiln::TypedKernel<float*, float>::create(*kernel);
  if (!scale) return fail(scale.error());
  auto launched = scale->launch(nullptr, {{2}, {64}}, nullptr, 3.0f);
  if (!launched) return fail(launched.error());

  fake_cuda_launch_record last{};
  if (!fake_cuda_launch(0, &last) || std::string_view(last.kernel) != "scale" ||
      last.grid[0] != 2 || last.block[0] != 64 || last.argument_bytes != 12) {
    std::fprintf(stderr, "the driver has another launch\n");
    return 1;
  }
  fake_cuda_fail("cuLaunchKernel", 700, 1);  // CUDA_ERROR_ILLEGAL_ADDRESS
  if (scale->launch(nullptr, {{2}, {64}}, nullptr, 3.0f)) {
    std::fprintf(stderr, "the launch did not fail\n");
    return 1;
  }
  std::printf("%s, %d calls of cuLaunchKernel\n", last.kernel,
              static_cast<int>(fake_cuda_calls("cuLaunchKernel")));
  return 0;
}
