// SPDX-License-Identifier: Apache-2.0
// The shortest host: makes the shipped kernels ready, then launches one of them.

#include <cukiln/cukiln.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

#include <cstdint>
#include <cstdio>

#include "device.hpp"

int fail(const cukiln::Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  return error.code() == cukiln::ErrorCode::compile_failed ? 1 : 3;
}

int main() {
  Device device;
  if (!device.open()) {
    std::fprintf(stderr, "no GPU here; `cukiln preload --no-load` does all but the launch\n");
    return 3;
  }
  auto settings = cukiln::Settings::load();  // from the environment
  if (!settings) return fail(settings.error());
  auto store = cukiln::Store::open(settings->store);
  if (!store) return fail(store.error());
  auto loader = cukiln::KernelLoader::create(*store, settings->loader);
  if (!loader) return fail(loader.error());

  auto warm = loader->preload(cukiln::nvfp4::manifest());  // hits load, misses compile
  if (!warm) return fail(warm.error());
  loader->seal();  // from here on a compile or a load is an error

  using cukiln::nvfp4::ComputeGlobalScale;
  using cukiln::nvfp4::GlobalScale;
  auto compute_scale = ComputeGlobalScale::create(*loader, 0);  // takes what preload made ready
  if (!compute_scale) return fail(compute_scale.error());

  std::vector<std::uint16_t> host(64 * 512, 0x3F80);  // bf16 1.0
  host[1234] = 0xC2A8;                                // bf16 -84
  const cukiln::MatrixView matrix(cukiln::DataType::bf16, device.upload(host), 64, 512);
  auto* scale = device.allocate<GlobalScale>(1);
  const std::size_t bytes = compute_scale->workspace_bytes();
  auto launched =
      compute_scale->launch(nullptr, scale, matrix, {device.allocate<char>(bytes), bytes});
  if (!launched) return fail(launched.error());

  const float amax = 2688.0f / device.download(scale, 1)[0].encode;
  std::printf("%zu modules ready in %.1f ms (%zu from the store); amax %g (84 expected)\n",
              warm->modules.size(), warm->elapsed.count(), warm->hits, amax);
  return amax == 84.0f ? 0 : 1;
}
