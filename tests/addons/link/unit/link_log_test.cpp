// SPDX-License-Identifier: Apache-2.0
#include "addons/link/link_log.hpp"

#include <doctest/doctest.h>

using namespace cukiln;

TEST_CASE("nvJitLink's report becomes kernels, completed by what the parts reported") {
  constexpr const char* kLinked =
      "info    : 16 bytes gmem\n"
      "info    : Function properties for '__nv_static_52__f4510a67_memcpy_3d_device':\n"
      "info    : used 16 registers, used 1 barriers, 0 stack, 3080 bytes smem, 0 bytes lmem\n"
      "info    : Function properties for 'second':\n"
      "info    : used 12 registers, used 1 barriers, 8 stack, 1152 bytes smem, 536 bytes cmem[0]\n"
      "info    : Function properties for 'of_object':\n"
      "info    : used 24 registers, used 0 barriers, 0 stack, 1280 bytes smem, 0 bytes lmem\n"
      "info    : Function properties for 'plain':\n"
      "info    : used 9 registers, used 0 barriers, 0 stack, 0 bytes smem, 0 bytes lmem\n"
      "INFO: NVVM70 LTOIR Container created (2360 bytes)\n"
      "warning : something\n";
  KernelInfo part;
  part.name = part.lowered = "second";
  part.registers = 7;
  part.shared_bytes = 128;
  part.spill_bytes = 4;
  const CompileLog log = parse_link_log(kLinked, {part}, 1024);
  REQUIRE(log.kernels.size() == 3);
  CHECK(log.kernels[0].lowered == "second");
  CHECK(log.kernels[0].registers == 12);
  CHECK(log.kernels[0].local_bytes == 8);
  CHECK(log.kernels[0].shared_bytes == 128);
  CHECK(log.kernels[0].spill_bytes == 4);
  CHECK(log.kernels[1].lowered == "of_object");
  CHECK(log.kernels[1].shared_bytes == 256);
  CHECK(log.kernels[2].registers == 9);
  CHECK(log.kernels[2].shared_bytes == 0);
  CHECK(log.text == "warning : something\n");
  CHECK(parse_link_log(kLinked, {part}, 0).kernels[1].shared_bytes == 1280);
  // where machine code was made in the link, ptxas's report is the one that counts
  const CompileLog both = parse_link_log(
      "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem\n"
      "info    : Function properties for 'first':\ninfo    : used 3 registers, 0 stack\n",
      {}, 0);
  REQUIRE(both.kernels.size() == 1);
  CHECK(both.kernels[0].registers == 40);
}
