// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.hpp"

#include <cukiln/kernel_info.hpp>

namespace cukiln {

/// NVRTC's log, split into ptxas's resource report and everything else.
struct CompileLog {
  std::vector<KernelInfo> kernels;  ///< entry functions in the report's order; name = lowered name
  std::string text;  ///< the log without the report, whose order and times differ from run to run
};
/// Splits a log.
CompileLog parse_log(ByteView log);

/// Splits nvJitLink's log, which reports on kernels in ptxas's words where it made machine code,
/// and in its own (`used 12 registers, …, 0 stack, 1152 bytes smem`) where it linked it. What the
/// parts reported of themselves completes the latter: their spills, and shared memory without the
/// `reserved_bytes` of each block that nvJitLink counts as the kernel's.
CompileLog parse_link_log(ByteView log, const std::vector<KernelInfo>& parts,
                          std::uint32_t reserved_bytes);

/// Chooses the kernels to list for a cubin: one for each name expression, with its lowered name, or
/// all of the report if no names were requested.
std::vector<KernelInfo> choose_kernels(const std::vector<KernelInfo>& all,
                                       const std::vector<std::string>& names,
                                       const std::vector<std::string>& lowered);

/// Returns the header that NVRTC could not open, according to its log; empty if it names none.
std::string missing_header(ByteView log);

}  // namespace cukiln
