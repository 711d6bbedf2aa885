// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/bytes.hpp"

#include <cukiln/kernel_info.hpp>

namespace cukiln {

/// NVRTC's log taken apart: what the assembler reported of every kernel, and the rest, for people.
struct CompileLog {
  std::vector<KernelInfo> kernels;  ///< entry functions in their order, name = lowered
  std::string text;  ///< without the assembler's report, which differs from run to run
};
CompileLog parse_log(ByteView log);

/// The kernels of a cubin: those asked for by name (`lowered` has one for each), or all.
std::vector<KernelInfo> choose_kernels(const std::vector<KernelInfo>& all,
                                       const std::vector<std::string>& names,
                                       const std::vector<std::string>& lowered);

/// The header that NVRTC could not open, from its log; empty: that was not the trouble.
std::string missing_header(ByteView log);

}  // namespace cukiln
