// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/compile/compile_log.hpp"
#include "core/compile/nvrtc_api.hpp"
#include "support/nvrtc_fixture.hpp"

#include <cukiln/cukiln.hpp>

namespace cukiln::testing {

using Strings = std::vector<std::string>;

/// A kernel whose size of shared memory is X.
inline constexpr const char* kKernelOfX =
    "#ifndef X\n#define X 77\n#endif\n"
    "extern \"C\" __global__ void k(float* p) {\n"
    "  __shared__ float s[X];\n  s[threadIdx.x] = *p;\n  __syncthreads();\n  *p = s[0];\n}\n";

/// Returns X as NVRTC itself compiles it in this process: without worker, virtual paths and
/// translation of flags.
inline std::uint32_t plain_x(const std::string& source, const Strings& flags) {
  static const NvrtcApi api = [] {
    NvrtcApi opened;
    const auto install = find_nvrtc(real_options().search);
    REQUIRE(install);
    REQUIRE(opened.open(install->library, install->builtins) == "");
    return opened;
  }();
  wire::Compile job;
  job.unit_path = source;
  job.unit_text = read_all(source);
  job.arguments = {"--gpu-architecture=sm_100a", "--std=c++17", "--ptxas-options=-v"};
  job.arguments.insert(job.arguments.end(), flags.begin(), flags.end());
  const wire::Compiled compiled = compile_with(api, job, OutputKind::cubin);
  CAPTURE(compiled.log);
  REQUIRE(compiled.status == wire::CompileStatus::ok);
  const CompileLog log = parse_log(compiled.log);
  REQUIRE(log.kernels.size() == 1);
  return log.kernels.front().shared_bytes / 4;
}

/// Returns X as cukiln compiled it.
inline std::uint32_t x_of(const ModuleReport& report) {
  REQUIRE(report.kernels.size() == 1);
  return report.kernels.front().shared_bytes / 4;
}

}  // namespace cukiln::testing
