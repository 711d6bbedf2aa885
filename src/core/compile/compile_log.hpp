// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

/// Parses the number before `unit` in a line: 8 in `Used 8 registers`; 0 if there is none.
std::uint32_t number_before(std::string_view line, std::string_view unit);

/// Chooses the kernels to list for a cubin: one for each name expression, with its lowered name, or
/// all of the report if no names were requested.
std::vector<KernelInfo> choose_kernels(const std::vector<KernelInfo>& all,
                                       const std::vector<std::string>& names,
                                       const std::vector<std::string>& lowered);

/// True if NVRTC's log has a line with the front end's count of errors in the text. What else makes
/// a compile fail (the assembler, no memory, an error of the compiler's own) may differ next time.
bool is_of_front_end(ByteView log);

/// Returns the header that NVRTC could not open, according to its log; empty if it names none.
std::string missing_header(ByteView log);

}  // namespace cukiln
