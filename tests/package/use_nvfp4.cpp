// SPDX-License-Identifier: Apache-2.0
// Looks up all kernels that come with an installed cukiln, without compiling or launching one.
#include <cukiln/nvfp4/nvfp4.h>
#include <cukiln/nvfp4/torch.h>
#include <cukiln/cukiln.hpp>
#include <cukiln/nvfp4/moe.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>
#include <cukiln/nvfp4/sampling.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: use_nvfp4 STORE\n");
    return 2;
  }
  cukiln::StoreOptions store_options;
  store_options.directory = argv[1];
  auto store = cukiln::Store::open(store_options);
  if (!store) {
    std::fprintf(stderr, "%s\n", store.error().to_string().c_str());
    return 1;
  }
  cukiln::LoaderOptions options;
  options.offline = true;
  auto loader = cukiln::KernelLoader::create(*store, options);
  if (!loader) {
    std::fprintf(stderr, "%s\n", loader.error().to_string().c_str());
    return 1;
  }
  cukiln::PreloadOptions no_load;
  no_load.load = false;
  no_load.keep_going = true;
  const auto report = cukiln::nvfp4::preload_all(*loader, no_load);
  std::size_t bytes = 0;
  if (!report || report->modules.size() < 10 ||
      cukiln_nvfp4_source("sampler.cu", &bytes) == nullptr) {
    std::fprintf(stderr, "the kernels that come with cukiln are not all there\n");
    return 1;
  }
  if (cukiln_torch_register() != CUKILN_NOT_FOUND) {  // one last error for both libraries
    std::fprintf(stderr, "PyTorch is not in this program: %s\n", cukiln_last_error());
    return 1;
  }
  std::printf("%zu modules\n", report->modules.size());
  return 0;
}
