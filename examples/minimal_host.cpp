// SPDX-License-Identifier: Apache-2.0
// The shortest host: makes the shipped kernels ready, then launches one of them.

#include <cukiln/cukiln.hpp>
#include <cukiln/nvfp4.hpp>

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

  auto amax_gsa = cukiln::nvfp4::AmaxGsa::create(*loader);  // finds what preload made ready
  if (!amax_gsa) return fail(amax_gsa.error());

  const std::uint32_t rows = 64;
  const std::uint32_t columns = 512;
  std::vector<std::uint16_t> host(rows * columns, 0x3F80);  // bf16 1.0
  host[1234] = 0xC2A8;                                      // bf16 -84
  float* gsa = device.allocate<float>(2);
  auto* workspace = device.allocate<std::uint32_t>(cukiln::nvfp4::AmaxGsa::kWorkspaceBytes /
                                                   sizeof(std::uint32_t));
  auto launched = amax_gsa->launch(nullptr, gsa, device.upload(host), rows, columns, workspace);
  if (!launched) return fail(launched.error());

  const std::vector<float> scale = device.download(gsa, 2);
  std::printf("%zu modules ready in %.1f ms (%zu from the store); amax %g (84 expected)\n",
              warm->modules.size(), warm->elapsed.count(), warm->hits, 2688.0 / scale[0]);
  return 2688.0f / scale[0] == 84.0f ? 0 : 1;
}
