// SPDX-License-Identifier: Apache-2.0
#include "addons/link/find_linker.hpp"

#include <doctest/doctest.h>

#include "support/scratch.hpp"

using namespace cukiln;
using testing::ScratchFolder;

TEST_CASE("nvJitLink is found beside NVRTC, in its wheel of CUDA 12, or elsewhere of its version") {
  const ScratchFolder root;
  const std::string nvrtc = root.write("nvidia/cu13/lib/libnvrtc.so.13", "");
  const std::string beside = root.write("nvidia/cu13/lib/libnvJitLink.so.13", "");
  const std::string nvrtc_12 = root.write("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "");
  const std::string wheel = root.write("nvidia/nvjitlink/lib/libnvJitLink.so.12", "");
  root.write("nvidia/nvjitlink/lib/libnvJitLink.so.11", "");
  const std::string toolkit = root.write("lib64/libnvJitLink.so.14.1.5", "");
  NvrtcSearch search;
  search.system = false;
  search.default_roots = {root.path()};
  CHECK(*find_linker(nvrtc, search) == beside);
  CHECK(*find_linker(nvrtc_12, search) == wheel);
  CHECK(*find_linker("/opt/alone/libnvrtc.so.14", search) == toolkit);
  CHECK(*find_linker("/opt/alone/libnvrtc.so.13", search) == beside);
  CHECK(*find_linker("/opt/alone/libnvrtc.so.12", search) == wheel);
  const auto none = find_linker(root / "nvidia/cu13/lib/libnvrtc.so.15", search);
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == ErrorCode::not_found);
  CHECK(none.error().message().find("libnvJitLink.so.15") != std::string::npos);
  CHECK(none.error().message().find(root / "nvidia/cu13/lib") != std::string::npos);
}
