// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/compile/compile_log.hpp"

namespace cukiln {

/// Splits nvJitLink's log, which reports on kernels in ptxas's words where it made machine code,
/// and in its own (`used 12 registers, …, 0 stack, 1152 bytes smem`) where it linked it. What the
/// parts reported of themselves completes the latter: their spills, and shared memory without the
/// `reserved_bytes` of each block that nvJitLink counts as the kernel's.
CompileLog parse_link_log(ByteView log, const std::vector<KernelInfo>& parts,
                          std::uint32_t reserved_bytes);

}  // namespace cukiln
